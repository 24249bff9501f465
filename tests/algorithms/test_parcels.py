"""A peer's half, which a user may have written, sends parcels and nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.peer_half import Parcel, PeerHalf, parcels_of
from testbed.errors import TestbedError
from testbed.updates import DenseUpdate, FloatVector, Update

ONE = Parcel(DenseUpdate(np.ones(2, np.float32)), (1,))


class Half(PeerHalf):
    def step(self, gradient: FloatVector) -> Sequence[Parcel]:
        return ()

    def receive(self, sender: int, update: Update) -> Sequence[Parcel]:
        return ()


class Answering(Half):
    answers = True


@pytest.mark.parametrize("returned", [None, ONE, ONE.update, [ONE, ONE.update], iter([ONE])])
def test_what_is_no_sequence_of_parcels_is_named_with_its_half(returned: Any) -> None:
    with pytest.raises(
        TestbedError, match=r"test_parcels\.Half returned .*, and not a sequence of Par"
    ):
        parcels_of(Half(np.zeros(2, np.float32)), returned)


def test_only_a_half_that_says_so_answers() -> None:
    """An emulation sent the answers of any half; a simulation whose peers pass on did not end."""
    silent, answering = Half(np.zeros(2, np.float32)), Answering(np.zeros(2, np.float32))
    assert parcels_of(silent, [ONE]) == parcels_of(answering, [ONE], answer=True) == [ONE]
    assert parcels_of(silent, (), answer=True) == ()
    with pytest.raises(TestbedError, match="set `answers = True` in its class"):
        parcels_of(silent, [ONE], answer=True)

"""The file of peers' parameters: the newest whole checkpoint of each peer counts."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from testbed.roles.peer.model_file import ModelFile

SIZE = 7


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    found = os.open(tmp_path / "models", os.O_RDWR | os.O_CREAT)
    yield found
    os.close(found)


def model(value: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.full(SIZE, value, np.float32)


def newest(descriptor: int, peer: int) -> tuple[int, list[float]] | None:
    found = ModelFile(descriptor, peer, SIZE).newest
    return None if found is None else (found[0], found[1].tolist())


def test_a_peer_finds_what_it_kept_last_and_nothing_of_others(descriptor: int) -> None:
    assert newest(descriptor, 0) is None
    one, other = ModelFile(descriptor, 1, SIZE), ModelFile(descriptor, 2, SIZE)
    for version in (4, 9, 11):
        one.keep(version, model(version))
    other.keep(3, model(-1))
    assert newest(descriptor, 0) is None
    assert newest(descriptor, 1) == (11, [11.0] * SIZE)
    assert newest(descriptor, 2) == (3, [-1.0] * SIZE)
    # The next incarnation goes on after it, also with a lower version.
    again = ModelFile(descriptor, 1, SIZE)
    again.keep(2, model(2))
    assert newest(descriptor, 1) == (2, [2.0] * SIZE)


def test_a_peer_that_was_killed_while_it_wrote_finds_the_checkpoint_before(descriptor: int) -> None:
    one = ModelFile(descriptor, 0, SIZE)
    one.keep(4, model(4))
    one.keep(9, model(9))
    size = os.fstat(descriptor).st_size
    for place in (0, 5, size // 2 - 1):  # in the slot that was written last, the first one
        before = os.pread(descriptor, 1, place)
        os.pwrite(descriptor, bytes([before[0] ^ 1]), place)
        assert newest(descriptor, 0) == (4, [4.0] * SIZE)
        os.pwrite(descriptor, before, place)
    assert newest(descriptor, 0) == (9, [9.0] * SIZE)

"""The file of a peer's parameters: its newest whole checkpoint counts."""

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


def newest(descriptor: int) -> tuple[int, list[float]] | None:
    found = ModelFile(descriptor, SIZE).newest
    return None if found is None else (found[0], found[1].tolist())


def test_a_peer_finds_what_it_kept_last(descriptor: int) -> None:
    assert newest(descriptor) is None
    one = ModelFile(descriptor, SIZE)
    for version in (4, 9, 11):
        one.keep(version, model(version))
    assert newest(descriptor) == (11, [11.0] * SIZE)
    # The next incarnation goes on after it, also with a lower version.
    again = ModelFile(descriptor, SIZE)
    again.keep(2, model(2))
    assert newest(descriptor) == (2, [2.0] * SIZE)


def test_a_peer_that_was_killed_while_it_wrote_finds_the_checkpoint_before(descriptor: int) -> None:
    one = ModelFile(descriptor, SIZE)
    one.keep(4, model(4))
    one.keep(9, model(9))
    size = os.fstat(descriptor).st_size
    for place in (0, 5, size // 2 - 1):  # in the slot that was written last, the first one
        before = os.pread(descriptor, 1, place)
        os.pwrite(descriptor, bytes([before[0] ^ 1]), place)
        assert newest(descriptor) == (4, [4.0] * SIZE)
        os.pwrite(descriptor, before, place)
    assert newest(descriptor) == (9, [9.0] * SIZE)

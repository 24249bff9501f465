"""The file in which a device keeps states of its own: what is needed stays, whatever is written."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.checkpoints.state_file import PAGE, StateFile


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    found = os.open(tmp_path / "states", os.O_RDWR | os.O_CREAT)
    yield found
    os.close(found)


def state(number: int, size: int = 7) -> dict[str, Any]:
    return {"number": number, "vector": np.full(size, number, np.float32)}


def assert_holds(file: StateFile, number: int, size: int = 7) -> None:
    found = file.read(number)
    assert found["number"] == number
    np.testing.assert_array_equal(found["vector"], np.full(size, number, np.float32))


def test_the_newest_of_two_is_found_by_the_next_process(descriptor: int) -> None:
    assert StateFile(descriptor).newest() is None
    one = StateFile(descriptor)
    for number in (4, 9, 2):
        one.add(state(number))
    assert len(one.numbers) == 2
    again = StateFile(descriptor)
    assert again.newest()["number"] == 2
    again.add(state(5))
    assert StateFile(descriptor).newest()["number"] == 5
    assert os.fstat(descriptor).st_size < 2 * PAGE


def test_a_process_that_was_killed_while_it_wrote_has_left_the_state_before(
    descriptor: int,
) -> None:
    one = StateFile(descriptor)
    one.add(state(4, 3 * PAGE))
    one.add(state(9, 3 * PAGE))
    size = os.fstat(descriptor).st_size
    for place in (size // 2 + PAGE, size - 1):  # in what was written last
        before = os.pread(descriptor, 1, place)
        os.pwrite(descriptor, bytes([before[0] ^ 1]), place)
        assert StateFile(descriptor).newest()["number"] == 4
        with pytest.raises(ValueError, match="the state 2 is damaged"):
            one.read(2)
        os.pwrite(descriptor, before, place)
    assert StateFile(descriptor).newest()["number"] == 9
    with pytest.raises(LookupError):
        one.read(3)


@given(st.lists(st.tuples(st.integers(1, 4 * PAGE), st.sets(st.integers(0, 4)), st.booleans())))
def test_what_is_needed_stays_whatever_is_written(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, set[int], bool]]
) -> None:
    """States of any size, of which any of the last five are needed, in any number of processes."""
    path = tmp_path_factory.mktemp("states") / "states"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    file, there = StateFile(descriptor), dict[int, int]()
    for number, (size, ages, is_new_process) in enumerate(writes):
        needed = {number - 1 - age for age in ages} & there.keys()
        if is_new_process:
            file = StateFile(descriptor)
        file.write(number, state(number, size), needed.__contains__)
        there = {one: there[one] for one in needed} | {number: size}
        assert set(file.numbers) == there.keys()
        for process in (file, StateFile(descriptor)):
            for one, length in there.items():
                assert_holds(process, one, length)
    os.close(descriptor)


def test_an_array_keeps_its_shape(descriptor: int) -> None:
    """A count of mini-batches, which BatchNorm keeps, is an array of no dimension."""
    arrays = [np.array(7), np.zeros((0, 3)), np.arange(6).reshape(2, 3).T]
    file = StateFile(descriptor)
    file.add({"arrays": arrays})
    for one, other in zip(file.newest()["arrays"], arrays, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)

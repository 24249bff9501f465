"""Counted copies: made for the first holder, shared by the others, dropped with the last."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.counted_copies import CountedCopies
from testbed.updates import FloatVector


def vector(value: float) -> FloatVector:
    return np.full(3, value, np.float32)


def test_the_first_hold_makes_the_copy_and_the_last_release_drops_it() -> None:
    copies: CountedCopies[FloatVector] = CountedCopies()
    parameters = vector(1)
    copies.hold(1, parameters)
    copies.hold(1, parameters)
    parameters[:] = 2
    copies.hold(2, parameters)
    assert len(copies) == 2
    assert copies[1].tolist() == [1, 1, 1]
    copies.release(1)
    assert copies[1].tolist() == [1, 1, 1]
    copies.release(1)
    with pytest.raises(KeyError):
        copies[1]
    assert len(copies) == 1
    assert copies[2].tolist() == [2, 2, 2]


def test_a_key_without_holders_cannot_be_released() -> None:
    copies: CountedCopies[FloatVector] = CountedCopies()
    copies.hold((0, 3), vector(1))
    copies.release((0, 3))
    with pytest.raises(KeyError):
        copies.release((0, 3))


def test_memory_is_used_again_and_not_shared() -> None:
    copies: CountedCopies[FloatVector] = CountedCopies()
    copies.hold("a", vector(1))
    first = copies["a"]
    copies.release("a")
    copies.hold("b", vector(2))
    copies.hold("c", vector(3))
    assert copies["b"] is first
    assert copies["b"].tolist() == [2, 2, 2]
    assert copies["c"].tolist() == [3, 3, 3]


@settings(deadline=None)  # the host may be busy
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=60))
def test_holders_are_counted(steps: list[tuple[bool, int]]) -> None:
    copies: CountedCopies[FloatVector] = CountedCopies()
    held: dict[int, int] = {}
    most = 0
    for holds, key in steps:
        if holds:
            copies.hold(key, vector(key))
            held[key] = held.get(key, 0) + 1
        elif held.get(key):
            copies.release(key)
            held[key] -= 1
        there = [one for one, count in held.items() if count]
        assert len(copies) == len(there)
        most = max(most, len(there))
        assert all((copies[one] == one).all() for one in there)
    # Memory for no more copies than were ever held at once.
    assert len(copies) + len(copies._spare) == most

"""What outstanding workers compute at is stored once, for as long as one of them needs it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.roles.versions import Versions


def vector(value: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.full(3, value, np.float32)


def test_a_version_is_copied_when_it_is_first_held_and_goes_with_its_last_holder() -> None:
    versions = Versions()
    parameters = vector(1)
    versions.hold(1, parameters)
    versions.hold(1, parameters)
    parameters[:] = 2
    versions.hold(2, parameters)
    assert len(versions) == 2
    assert versions[1].tolist() == [1, 1, 1]
    versions.release(1)
    assert versions[1].tolist() == [1, 1, 1]
    versions.release(1)
    with pytest.raises(KeyError):
        versions[1]
    assert len(versions) == 1
    assert versions[2].tolist() == [2, 2, 2]


def test_what_nobody_holds_cannot_be_released() -> None:
    versions = Versions()
    versions.hold((0, 3), vector(1))
    versions.release((0, 3))
    with pytest.raises(KeyError):
        versions.release((0, 3))


def test_memory_is_used_again_and_not_shared() -> None:
    versions = Versions()
    versions.hold("a", vector(1))
    first = versions["a"]
    versions.release("a")
    versions.hold("b", vector(2))
    versions.hold("c", vector(3))
    assert versions["b"] is first
    assert versions["b"].tolist() == [2, 2, 2]
    assert versions["c"].tolist() == [3, 3, 3]


@settings(deadline=None)  # the host may be busy
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=60))
def test_holders_are_counted(steps: list[tuple[bool, int]]) -> None:
    versions = Versions()
    held: dict[int, int] = {}
    most = 0
    for holds, key in steps:
        if holds:
            versions.hold(key, vector(key))
            held[key] = held.get(key, 0) + 1
        elif held.get(key):
            versions.release(key)
            held[key] -= 1
        there = [one for one, count in held.items() if count]
        assert len(versions) == len(there)
        most = max(most, len(there))
        assert all((versions[one] == one).all() for one in there)
    # No more memory than was ever needed at once.
    assert len(versions) + len(versions._spare) == most

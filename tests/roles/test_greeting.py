"""Who greets, as one number."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.roles.greeting import Who


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
def test_a_number_says_who_greets(number: int, incarnation: int, kills: int) -> None:
    who = Who(number, incarnation, kills)
    assert 0 <= int(who) < 2**64
    assert Who.of(int(who)) == who


def test_the_first_ones_number_is_the_device_s() -> None:
    assert int(Who(7)) == 7

"""Numbers as text for people."""

import pytest

from testbed.number_text import UNKNOWN, as_energy, as_milliseconds, as_number, as_share


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1200, "1,200 runs")]
)
def test_a_number_has_its_noun_in_the_singular_or_plural(count: int, text: str) -> None:
    assert as_number(count, "run") == text


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (0, "0 J"),
        (4.2e-7, "420 nJ"),
        (0.0035, "3.5 mJ"),
        (999.4, "999 J"),
        (999.6, "1 kJ"),
        (1234.5, "1.23 kJ"),
        (2.5e9, "2500 MJ"),
        (None, UNKNOWN),
    ],
)
def test_energies_have_three_digits_and_a_prefix(joules: float | None, text: str) -> None:
    assert as_energy(joules) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12.34, "12.3"),
        (999.4, "999"),
        (999.6, "1,000"),
        (1234.5, "1,234"),
        (2.4e5, "240,000"),
    ],
)
def test_thousands_of_milliseconds_and_percents_have_all_their_digits(
    value: float, text: str
) -> None:
    assert as_milliseconds(value / 1000) == f"{text} ms"
    assert as_share(value / 100) == f"{text} %"

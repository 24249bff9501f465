"""Numbers as text for people."""

import pytest

from testbed.number_text import as_number


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1200, "1,200 runs")]
)
def test_a_number_has_its_noun_in_the_singular_or_plural(count: int, text: str) -> None:
    assert as_number(count, "run") == text

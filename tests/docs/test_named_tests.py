"""The tests that the artifact's page names for each feature are there."""

import re

from tests.docs.blocks import REPOSITORY

_NAMED = re.compile(r"`(\w+(?:/\w+)*/test_\w+\.py)`")


def test_the_tests_that_hold_features_are_there() -> None:
    named = _NAMED.findall((REPOSITORY / "docs" / "artifact.md").read_text())
    assert len(set(named)) > 70
    assert not [file for file in named if not (REPOSITORY / "tests" / file).is_file()]

"""Tests of properties that need more examples than others, and as few as those in ``make quick``."""

import hypothesis

EVERYWHERE = 40
"""Examples of a property that asks for no number; every run of the tests draws others."""


def many(examples: int) -> hypothesis.settings:
    """Return settings for so many examples, or for those of a profile that has few."""
    of_profile = hypothesis.settings.default
    assert of_profile is not None
    few = of_profile.max_examples
    return hypothesis.settings(max_examples=examples if few >= EVERYWHERE else few, deadline=None)

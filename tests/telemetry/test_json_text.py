"""JSON as it is written to disk: a number that is not finite becomes null, at any depth."""

import json
import math

import pytest

from testbed.telemetry.json_text import json_text


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_only_numbers_that_are_not_finite_become_null() -> None:
    value = {"a": [1, 2.5, math.inf, (math.nan, -math.inf)], "b": {"c": None, "d": "Infinity"}}
    read = json.loads(json_text(value), parse_constant=refuse)
    assert read == {"a": [1, 2.5, None, [None, None]], "b": {"c": None, "d": "Infinity"}}


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError):
        json_text({"a": object()})

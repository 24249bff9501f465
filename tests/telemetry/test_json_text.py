"""JSON as it is written to disk: what is not finite becomes null, wherever it stands."""

import json
import math

import pytest

from testbed.telemetry.json_text import json_text


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_what_is_not_finite_is_null_and_all_else_is_as_it_was() -> None:
    value = {"a": [1, 2.5, math.inf, (math.nan, -math.inf)], "b": {"c": None, "d": "Infinity"}}
    read = json.loads(json_text(value), parse_constant=refuse)
    assert read == {"a": [1, 2.5, None, [None, None]], "b": {"c": None, "d": "Infinity"}}


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError):
        json_text({"a": object()})

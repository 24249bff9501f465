"""No number in an experiment file may be infinite or NaN; every number in the JSON Schema is tried."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.errors import SpecError
from testbed.experiment.load import json_schema, load

SCHEMA = json_schema()


def with_value(schema: dict[str, Any], value: float) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Put a value in the place of each number below a schema, one at a time.

    Yields:
        The path of the number, and content that has the value there and otherwise only the keys that
        the schema requires.
    """
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", ())
    if {"number", "integer"} & {*([kinds] if isinstance(kinds, str) else kinds)}:
        yield (), value
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from with_value(branch, value)
    if "items" in schema:
        for at, item in with_value(schema["items"], value):
            yield (0, *at), [item]
    properties = schema.get("properties", {})
    around = {key: example(properties[key]) for key in schema.get("required", ())}
    for key, inner in properties.items():
        for at, content in with_value(inner, value):
            yield (key, *at), around | {key: content}


def example(schema: dict[str, Any]) -> Any:
    for key in ("const", "examples", "enum"):
        if key in schema:
            return schema[key] if key == "const" else schema[key][0]
    raise AssertionError(f"nothing says what could stand at {schema}")


def test_the_schemas_numbers_are_found() -> None:
    found = {".".join(map(str, at)) for at, _ in with_value(SCHEMA, 0)}
    assert {
        "seed", "algorithms.0.learning_rate", "algorithms.0.momentum", "compute.classes.0.factor",
        "devices.classes.0.waiting.changes.0.at", "devices.classes.0.faults.0.how.cpus",
        "encoding.level", "faults.0.when.mean_time", "network.loss", "training.learning_rate",
    } <= found  # fmt: skip


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan], ids=str)
def test_no_number_is_infinite_or_nan(tmp_path: Path, value: float) -> None:
    path = tmp_path / "experiment.yaml"
    written = yaml.safe_dump(value).split()[0]
    amiss = []
    for at, content in with_value(SCHEMA, value):
        key = ".".join(map(str, at))
        text = yaml.safe_dump(content, default_flow_style=False, sort_keys=False)
        ends = (f": {written}", f"- {written}")
        (line,) = (i for i, row in enumerate(text.splitlines(), 1) if row.endswith(ends))
        path.write_text(text, encoding="utf-8")
        found = [row for row in refusal(path) if f": {key}: " in row]
        # Exactly one message, with the line, the key and the value.
        expected = f"{path}:{line}: {key}: "
        if len(found) != 1 or not found[0].startswith(expected) or str(value) not in found[0]:
            amiss.append((key, found))
    assert not amiss, "\n".join(str(o) for o in amiss)


def refusal(path: Path) -> list[str]:
    try:
        load(path)
    except SpecError as error:
        return str(error).splitlines()
    return []


MAY_BE_HUGE = {
    "algorithms.0.epsilon",  # a divisor
    "algorithms.0.growth",  # of a bound
    "network.trace.content.downlink.period",
    "network.trace.content.uplink.period",
    "training.clip",
    "training.schedule.factor",  # bounded with the number of milestones
    "training.schedule.milestones.0",
    "training.schedule.warm_up",
}
"""Numbers that a step of training is not multiplied by."""


def test_no_factor_of_a_step_is_beyond_float32(tmp_path: Path) -> None:
    path = tmp_path / "experiment.yaml"
    computing = {"distribution": "exponential", "mean": "1s"}
    taken = set()
    for at, content in with_value(SCHEMA, 1e39):
        whole = {"name": "huge", "dataset": "digits", "compute": computing} | content
        path.write_text(yaml.safe_dump(whole), encoding="utf-8")
        if not refusal(path):
            taken.add(".".join(map(str, at)))
    assert taken == MAY_BE_HUGE

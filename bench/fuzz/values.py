"""Draw values that a JSON Schema allows, and values that it does not.

The schema is ``testbed schema``'s, so that a new key is drawn without a change here. Numbers are kept
small, because a drawn experiment is also run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Schema: TypeAlias = Mapping[str, Any]
Draw: TypeAlias = np.random.Generator
_LARGEST = 12
"""The largest whole number drawn, where the schema's least is smaller."""
_DEEPEST = 6
"""The depth from which optional keys are left out."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 10**30, 0.5, -0.0, 1e-320, 1e300),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        "",
        " ",
        "0",
        "-1",
        "1e400",
        "nan",
        "inf%",
        "100%",
    ),
    *(
        "0.0000001ms",
        "1e9h",
        "10mbit",
        "0bit",
        "1.5GiB",
        "worker-0",
        "server-0",
        "worker-99",
        "latest",
    ),
    *("é\u202e", "a\x1b[31mb", "a/b", "../x", "x" * 300, "{}", "[]", "os:system", "no.such:thing"),
    *(
        [],
        [[]],
        {},
        [None],
        [0],
        {"": 0},
        {"name": None},
        {"name": "asgd", "nothing": 1},
        ["asgd"] * 3,
    ),
)
"""Values that people and programs write by mistake."""


class Values:
    """Draws values of a schema.

    Args:
        schema: the whole JSON Schema, whose ``$defs`` are looked up.
        files: by key (``file``, ``trace``...) the paths of files that are there.
    """

    def __init__(self, schema: Schema, files: Mapping[str, Sequence[str]]) -> None:
        self._definitions: Schema = schema["$defs"]
        self._files = files

    def resolved(self, schema: Schema) -> Schema:
        """Return a schema, or the definition that it refers to."""
        while "$ref" in schema:
            schema = self._definitions[schema["$ref"].rpartition("/")[2]]
        return schema

    def of(self, schema: Schema, draw: Draw, key: str = "", depth: int = 0) -> Any:
        """Draw a value of a schema; ``key`` is the key that it will stand under."""
        schema = self.resolved(schema)
        if key in self._files and draw.random() < 0.7:
            return _one(draw, self._files[key])
        for several in ("oneOf", "anyOf"):
            if several in schema:
                return self.of(_one(draw, schema[several]), draw, key, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return _one(draw, schema["enum"])
        if "examples" in schema and draw.random() < 0.7:
            return _one(draw, schema["examples"])
        kind = schema.get("type", "null")
        if isinstance(kind, list):
            kind = _one(draw, kind)
        return self._of_kind(kind, schema, draw, key, depth)

    def _of_kind(self, kind: str, schema: Schema, draw: Draw, key: str, depth: int) -> Any:
        makers: dict[str, Callable[[], Any]] = {
            "object": lambda: self.object(schema, draw, depth),
            "array": lambda: [
                self.of(schema.get("items", {}), draw, key, depth + 1)
                for _ in range(int(draw.integers(0, 3)))
            ],
            "integer": lambda: _whole(schema, draw),
            "number": lambda: _number(schema, draw),
            "boolean": lambda: bool(draw.random() < 0.5),
            "string": lambda: _one(
                draw, schema.get("examples", ("some", "rules.py", "100ms", "1%"))
            ),
            "null": lambda: None,
        }
        return makers[kind]()

    def object(self, schema: Schema, draw: Draw, depth: int = 0) -> dict[str, Any]:
        """Draw a mapping: the required keys, and some of the others."""
        schema = self.resolved(schema)
        required, keys = schema.get("required", ()), schema.get("properties", {})
        share = 0.0 if depth >= _DEEPEST else 2 / (len(keys) + 2)
        return {
            key: self.of(one, draw, key, depth + 1)
            for key, one in keys.items()
            if key in required or draw.random() < share
        }


def _one(draw: Draw, options: Sequence[Any]) -> Any:
    return options[int(draw.integers(len(options)))]


def _whole(schema: Schema, draw: Draw) -> int:
    least = int(schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1))
    most = int(schema.get("maximum", max(least + 1, _LARGEST)))
    return int(draw.integers(least, min(most, max(least, _LARGEST)) + 1))


def _number(schema: Schema, draw: Draw) -> float:
    least = float(schema.get("minimum", schema.get("exclusiveMinimum", 0.0)))
    most = float(schema.get("maximum", schema.get("exclusiveMaximum", max(1.0, 2 * least))))
    edges = [schema[key] for key in ("minimum", "maximum") if key in schema]
    if edges and draw.random() < 0.3:
        return float(_one(draw, edges))
    return round(float(draw.uniform(least, min(most, least + 2))), 3)


def places(data: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all keys and items of a document, parents first."""
    items: Any = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    return [one for key, value in items for one in ((*at, key), *places(value, (*at, key)))]


def with_value(data: Any, at: tuple[str | int, ...], value: Any) -> Any:
    """Return a copy of a document with another value at a path."""
    if not at:
        return value
    if isinstance(data, dict):
        return {**data, at[0]: with_value(data.get(at[0], {}), at[1:], value)}
    return [with_value(one, at[1:], value) if i == at[0] else one for i, one in enumerate(data)]


def spoilt(data: Any, draw: Draw) -> Any:
    """Return a copy of a document with one mistake: a value of ``ODD``, a key too many or too few."""
    at = _one(draw, places(data))
    kind = draw.random()
    if kind < 0.7:
        return with_value(data, at, _one(draw, ODD))
    parent: Any = data
    for key in at[:-1]:
        parent = parent[key]
    if kind < 0.85 and isinstance(parent, dict):
        return with_value(data, at[:-1], {**parent, f"{at[-1]}_": _one(draw, ODD)})
    if isinstance(parent, dict):
        return with_value(data, at[:-1], {k: v for k, v in parent.items() if k != at[-1]})
    return with_value(data, at[:-1], [*parent, *parent])

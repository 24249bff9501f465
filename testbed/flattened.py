"""Nested values by dotted keys, as ``--set`` takes them (``algorithms.0.ratio``)."""

import json
from collections.abc import Iterator
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool


def flattened(value: object, key: str = "") -> Iterator[tuple[str, Scalar]]:
    """Yield the keys and values of a file; a list without mappings is one value, null is none.

    Args:
        key: of ``value``, before the keys in it.
    """
    if isinstance(value, list) and not any(isinstance(one, dict | list) for one in value):
        if value:
            yield key, json.dumps(value, default=str)
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, one in items:
            yield from flattened(one, f"{key}.{name}" if key else str(name))
    elif isinstance(value, str | int | float):
        yield key, value
    elif value is not None:  # a date, of YAML
        yield key, str(value)

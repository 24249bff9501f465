"""Dataclasses as plain JSON values, and back by the types of their fields."""

import functools
from dataclasses import asdict
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

_reader = functools.cache(TypeAdapter)


def to_plain(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON values; records within it become objects as well."""
    return asdict(record)


def of_plain(kind: type[T], plain: Any) -> T:
    """Return the dataclass whose fields JSON values are; other keys are ignored.

    Raises:
        pydantic.ValidationError: a field is missing, or its value is of another type.
    """
    read: T = _reader(kind).validate_python(plain)  # type: ignore[arg-type]
    return read

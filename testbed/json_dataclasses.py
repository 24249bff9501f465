"""Dataclasses as plain JSON values, and back."""

import functools
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

_reader = functools.cache(TypeAdapter)


def of_plain(kind: type[T], plain: Any) -> T:
    """Return the dataclass whose fields JSON values are; other keys are ignored.

    Raises:
        pydantic.ValidationError: a field is missing, or its value is of another type.
    """
    read: T = _reader(kind).validate_python(plain)  # type: ignore[arg-type]
    return read


def to_plain(value: object) -> Any:
    """Return the JSON values of a dataclass, for ``of_plain``; its fields may be pydantic's."""
    return _reader(type(value)).dump_python(value, mode="json")  # type: ignore[arg-type]

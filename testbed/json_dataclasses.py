"""Dataclasses from the plain JSON values that ``dataclasses.asdict`` made of them."""

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

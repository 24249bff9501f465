"""The base of all sections of an experiment file, and helpers that several of them use."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

Conflict: TypeAlias = tuple[tuple[Any, ...], str]
"""A path from the top of the file, and a sentence: what is wrong there and what to do."""


class Section(BaseModel):
    """A frozen mapping that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def as_tuple(value: object) -> object:
    """Turn a list into the tuple that a frozen section holds; return anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def not_whole(shares: Iterable[float]) -> str | None:
    """Return a message if the shares of all classes do not add up to 1; None if there are no shares."""
    given = list(shares)
    total = sum(given)
    if given and abs(total - 1) > 1e-9:
        return f"the shares add up to {100 * total:.10g}% and not to 100%"
    return None

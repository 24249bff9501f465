"""What all parts of an experiment file have in common."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

Conflict: TypeAlias = tuple[tuple[Any, ...], str]
"""A path from the top of the file, and what cannot be there, and what to do."""


class Section(BaseModel):
    """A frozen mapping that accepts nothing it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def as_tuple(value: object) -> object:
    """A list as the file has it, as the frozen section keeps it."""
    return tuple(value) if isinstance(value, list) else value


def not_whole(shares: Iterable[float]) -> str | None:
    """What is wrong with the shares of all classes, if anything; no classes are nothing wrong."""
    given = list(shares)
    total = sum(given)
    if given and abs(total - 1) > 1e-9:
        return f"the shares add up to {100 * total:.10g}% and not to 100%"
    return None

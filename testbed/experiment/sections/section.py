"""The base of all sections of an experiment file, and helpers that several of them use."""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from pydantic_core import PydanticCustomError

Conflict: TypeAlias = tuple[tuple[Any, ...], str]
"""A path from the top of the file, and a sentence: what is wrong there and what to do."""


FOLDER = "folder"
"""Key of the validation context: the folder against which relative paths of data are resolved."""


class Section(BaseModel):
    """A frozen mapping that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SparseSection(Section):
    """A section that is dumped without the keys that have their defaults."""

    def _written(self) -> Collection[str]:
        """Return the keys that are dumped with their defaults, too."""
        return ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields, written = type(self).model_fields, self._written()
        return {
            key: value
            for key, value in handler(self).items()
            if key in written
            or getattr(self, key) != fields[key].get_default(call_default_factory=True)
        }


def refuse(conflicts: Sequence[Conflict]) -> None:
    """Raise an error of pydantic's that has all conflicts; do nothing if there are none."""
    if conflicts:
        text = "; ".join(text for _, text in conflicts)
        raise PydanticCustomError("conflict", "{text}", {"text": text, "conflicts": conflicts})


def path_in(folder: Path, name: str) -> Path | None:
    """Return the absolute path of a file or folder that is there; None if there is none.

    There is none of a name that the file system cannot have, or below a home that nobody has.
    """
    try:
        path = (folder / Path(name).expanduser()).resolve()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def as_tuple(value: object) -> object:
    """Turn a list into the tuple that a frozen section holds; return anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def check_name(name: str, of: str) -> str:
    """Return a name of letters, digits, '-' and '_'.

    Args:
        of: what it names, with an article, for the message.

    Raises:
        ValueError: it is no such name.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise ValueError(
            f"'{name[:64]}' cannot be {of}'s name: use up to 64 letters, digits, '-' and '_'"
        )
    return name


def wrong_sizes(
    shares: Sequence[float | None], numbers: Sequence[int | None], devices: int
) -> str | None:
    """Return a message if shares, or numbers, of devices do not make up all of them; otherwise None.

    Args:
        shares, numbers: of each part; all of the ones or all of the others are None.
    """
    given = [number for number in numbers if number is not None]
    if given and sum(given) != devices:
        return f"the numbers add up to {sum(given)} and not to devices.workers, {devices}"
    return not_whole(share for share in shares if share is not None)


def not_whole(shares: Iterable[float]) -> str | None:
    """Return a message if the shares of all classes do not add up to 1; None if there are no shares."""
    given = list(shares)
    total = sum(given)
    if given and abs(total - 1) > 1e-9:
        return f"the shares add up to {100 * total:.10g}% and not to 100%"
    return None

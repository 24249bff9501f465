"""The results of the doctor's checks, and the leftovers of killed runs."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of the doctor.

    Attributes:
        what: what was checked.
        state: ``ok``; ``limited``: runs work, without some feature; ``missing``: runs do not work.
        found: what was found.
        remedy: how to get what is missing; empty if nothing is.
    """

    what: str
    state: Literal["ok", "limited", "missing"]
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A leftover of a killed run.

    Attributes:
        name: its path, or the container's name.
        problem: why it has not been removed; empty if it has been.
    """

    name: str
    problem: str = ""


def removed(path: Path, remove: Callable[[], object]) -> Leftover:
    """Remove what a killed run has left at a path, if this user may."""
    try:
        remove()
    except PermissionError as error:
        return Leftover(str(path), f"{error.strerror}: do it as root")
    except OSError as error:
        return Leftover(str(path), error.strerror or str(error))
    return Leftover(str(path))


def removed_folders(paths: Iterable[Path]) -> Iterator[Leftover]:
    """Remove folders, with all that is in them; yield each."""
    for path in paths:
        yield removed(path, partial(shutil.rmtree, path))

"""A dataset as an experiment file names it: a name or a path, or a function and its arguments.

Functions are those of plug-ins and the few of ``FUNCTIONS``, which the testbed comes with.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, get_args

from testbed.errors import SpecError
from testbed.learning.data import huggingface, text
from testbed.plugins.names import find, is_plugin

ENTRY_POINTS = "testbed.datasets"
"""The group of entry points by which installed packages give their datasets short names."""
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "huggingface": huggingface.load,
    "text": text.load,
}


@dataclass(frozen=True, slots=True)
class DatasetChoice:
    """A dataset that is chosen by name, with its options.

    Attributes:
        name: as in the experiment file.
        options: names and values of a function's arguments, as plain data.
        digest: of what the function returned when the run was planned, as ``Raw`` has it; None: any.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    digest: str | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def key(self) -> str:
        """A text that only this choice has."""
        return f"{self.name} {json.dumps(dict(self.options), sort_keys=True)}"

    @property
    def is_function(self) -> bool:
        """True if a function returns the dataset, whether it can be imported or not."""
        return self.name in FUNCTIONS or is_plugin(self.name, FUNCTIONS, ENTRY_POINTS)

    @property
    def function(self) -> Callable[..., Any]:
        """The function that returns the dataset.

        Raises:
            SpecError: there is none, its module cannot be imported, or it is no function.
        """
        found = find(self.name, FUNCTIONS, ENTRY_POINTS)
        if not callable(found):
            raise SpecError(f"'{self.name}' is no dataset: it must be a function that returns one")
        return found  # type: ignore[no-any-return]

    def arguments(self) -> dict[str, Any]:
        """Return the function's arguments; those that it annotates as paths are ``Path`` objects."""
        paths = path_arguments(self.function)
        return {
            key: Path(value) if key in paths and isinstance(value, str) else value
            for key, value in self.options.items()
        }

    @property
    def paths(self) -> list[Path]:
        """The files and folders that the function reads, as far as its annotations say so."""
        return [one for one in self.arguments().values() if isinstance(one, Path)]


Named: TypeAlias = str | Path | DatasetChoice
"""A dataset by its name or path, or with its options."""


def as_choice(named: Named) -> DatasetChoice:
    """Return a choice; of a name or path, without options."""
    return named if isinstance(named, DatasetChoice) else DatasetChoice(str(named))


def path_arguments(function: Callable[..., Any]) -> set[str]:
    """Return the names of the arguments that are annotated as paths."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return {one.name for one in parameters if Path in (one.annotation, *get_args(one.annotation))}

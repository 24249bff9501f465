"""A paper's runs as sweeps, the lines of its figures that they serve, and the scales of both.

A study is a sweep: an experiment file, and keys of it with their values. A line is one algorithm of it
at one combination of these values, with a run for each seed. A scale changes the file's values by the
same ``--set`` options that a person would give, so that ``testbed run`` can make every run as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from testbed.experiment.combinations import Sweep, Values, load_sweep, text_of
from testbed.experiment.overrides import Override
from testbed.experiment.spec import Spec


@dataclass(frozen=True, slots=True)
class Key:
    """A swept key of an experiment file.

    Attributes:
        name: as ``--set`` has it, e.g. ``devices.workers``.
        values: its values, as written in the file.
        symbol: stands for it in titles, e.g. ``n``.
    """

    name: str
    values: tuple[Any, ...]
    symbol: str


@dataclass(frozen=True, slots=True)
class Study:
    """Runs of a paper that are one sweep: an experiment file and swept keys; the seeds are an order's.

    Attributes:
        experiment: the experiment file.
        keys: the swept keys but for the seed; a ``sweep`` section of the file is replaced by them.
        exclude: the combinations of the keys' values that are not run, as in a ``sweep`` section.
    """

    experiment: Path
    keys: tuple[Key, ...] = ()
    exclude: tuple[Mapping[str, Any], ...] = ()

    def lines(
        self, titles: Mapping[str, str], accuracies: Mapping[str, float] | None = None
    ) -> "tuple[Series, ...]":
        """Return a line for each algorithm and combination of values.

        Args:
            titles: of the algorithms, by their labels in the file.
            accuracies: the paper's final accuracies in percent, by the lines' names, such as
                ``asgd-4``: the label and the values.
        """
        accuracies = accuracies or {}
        found = []
        for label, title in titles.items():
            for combination in product(*(key.values for key in self.keys)):
                values = {
                    key.name: value for key, value in zip(self.keys, combination, strict=True)
                }
                if self._excludes(values):
                    continue
                name = self.name(label, *combination)
                parts = [f"{key.symbol} = {text_of(values[key.name])}" for key in self.keys]
                accuracy = accuracies.get(name)
                found.append(
                    Series(name, ", ".join([title, *parts]), self, label, accuracy, values)
                )
        return tuple(found)

    def _excludes(self, values: Values) -> bool:
        return any(
            all(
                values[key] in (out if isinstance(out, list) else [out]) for key, out in one.items()
            )
            for one in self.exclude
        )

    def name(self, label: str, *values: Any) -> str:
        """Return a line's name: the algorithm's label and the values of the keys, in their order."""
        return "-".join([label, *map(text_of, values)])

    def across(self, label: str, key: str, **others: Any) -> dict[Any, str]:
        """Return by each value of a key the name of an algorithm's line, for panels and tables.

        Args:
            others: the values of the other keys, by their symbols.
        """
        (swept,) = (one for one in self.keys if one.name == key)
        return {
            value: self.name(
                label, *(value if one is swept else others[one.symbol] for one in self.keys)
            )
            for value in swept.values
        }

    def sweep(self, seeds: Sequence[int], scaled: Callable[[Spec], Sequence[str]]) -> Sweep[Spec]:
        """Return the sweep over seeds and keys, all of one seed before the next.

        Args:
            scaled: from a combination's spec, as the file and the keys have it, to ``--set`` options.

        Raises:
            SpecError: the experiment file cannot be used.
        """
        section: dict[str, Any] = {"seed": list(seeds)}
        section |= {key.name: list(key.values) for key in self.keys}
        if self.exclude:
            section["exclude"] = [dict(one) for one in self.exclude]
        option = Override(f"the study of {self.experiment.name}", ("sweep",), section)
        return load_sweep(self.experiment, [option], scaled=scaled)


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a figure, or one row of a table.

    Attributes:
        name: name on the command line, unique in its part, e.g. ``asgd``.
        title: name in figures and tables.
        study: the sweep that its runs are of.
        label: label of the algorithm in the study's file.
        accuracy: the paper's final accuracy, percent; None where it gives none.
        values: those of the study's keys.
    """

    name: str
    title: str
    study: Study
    label: str
    accuracy: float | None = None
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scale:
    """A size of a paper's runs.

    Attributes:
        name: its name on the command line.
        seeds: the seeds, unless others are asked for.
        options: from a file's spec to the ``--set`` options of this scale.
        as_in_paper: True if the runs are as large as the paper's, so that accuracies must be near.
        remark: what a reader of its pages has to know.
        checkpoint_every: updates from one checkpoint to the next; None for no checkpoints.
    """

    name: str
    seeds: tuple[int, ...] = (1,)
    options: Callable[[Spec], Sequence[str]] = lambda _: ()
    as_in_paper: bool = False
    remark: str = ""
    checkpoint_every: int | None = None

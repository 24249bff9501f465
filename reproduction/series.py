"""The lines of a paper's figures, the scales at which they are reproduced, and the runs of both.

A line is one algorithm of an experiment file. A scale changes the file's values by the same ``--set``
options that a person would give, so that every run can be made by ``testbed run`` as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.experiment.load import load
from testbed.experiment.spec import Spec


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a figure, or one row of a table.

    Attributes:
        name: name on the command line, unique in its part, e.g. ``asgd``.
        title: name in figures and tables.
        experiment: the experiment file.
        label: label of the algorithm in that file.
        accuracy: the paper's final accuracy, percent; None where it gives none.
        options: ``--set`` options of this line, e.g. ``devices.workers=8`` for a point of a sweep.
    """

    name: str
    title: str
    experiment: Path
    label: str
    accuracy: float | None = None
    options: tuple[str, ...] = ()


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


def load_run(series: Series, scale: Scale, seed: int) -> Spec:
    """Return the spec of one run of a line.

    Raises:
        SpecError: the experiment file cannot be used.
    """
    as_written = load(series.experiment, series.options)
    options = (*series.options, *scale.options(as_written))
    return load(series.experiment, options, seed).runs()[series.label]

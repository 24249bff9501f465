"""The tables of the pages, as Markdown.

Most tables have a row for each line of a part: such a table is data, its columns. The columns here suit
every paper; a paper may have columns of its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from reproduction.claims import as_cost
from reproduction.measures import Line, Lines, Reached, Spread, Target, both_reaching
from reproduction.record import Record
from testbed.experiment.combinations import text_of
from testbed.number_text import UNKNOWN, as_count, as_decimal, as_duration, as_fraction

Cell: TypeAlias = Callable[[Line, Lines], str]
_NAMES = {"iteration": "updates", "time": "time", "payload_bytes": "payload", "wire_bytes": "wire"}


class Table(Protocol):
    """A table of a part's lines."""

    def markdown(self, lines: Lines) -> str:
        """Return the table; an empty text leaves it out."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and what it says of a line, given all lines of the part."""

    heading: str
    cell: Cell


@dataclass(frozen=True, slots=True)
class LineTable:
    """A table with a row for each line; the first column has their titles."""

    heading: str
    columns: tuple[Column, ...]

    def markdown(self, lines: Lines) -> str:
        """Return the table."""
        rows = [
            (line.series.title, *(column.cell(line, lines) for column in self.columns))
            for line in lines.values()
        ]
        return markdown((self.heading, *(column.heading for column in self.columns)), rows)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of a sweep: a row for each value, a column for each algorithm.

    Attributes:
        heading: that of the first column.
        columns: the headings of the others.
        rows: by title the names of the lines in the columns.
    """

    heading: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    cell: Cell

    @classmethod
    def of(cls, curves: Mapping[str, Mapping[Any, str]], heading: str, cell: Cell) -> "Grid":
        """Return the table of the curves of a sweep.

        Args:
            curves: by the heading of a column the names of its lines by value, as
                ``Study.across`` gives them; all have the same values.
        """
        values = list(next(iter(curves.values())))
        rows = {
            text_of(value): tuple(names[value] for names in curves.values()) for value in values
        }
        return cls(heading, tuple(curves), rows, cell)

    def markdown(self, lines: Lines) -> str:
        """Return the table."""
        rows = [
            (title, *(self.cell(lines[name], lines) for name in names))
            for title, names in self.rows.items()
        ]
        return markdown((self.heading, *self.columns), rows)


@dataclass(frozen=True, slots=True)
class ClassTable:
    """A table of the applied updates of each device class; empty if no run has classes."""

    def markdown(self, lines: Lines) -> str:
        """Return the table."""
        rows = [
            (line.series.title, str(run.seed), one.name, *map(as_count, (one.workers, one.updates)))
            for line in lines.values()
            for run in line.runs
            for one in run.result.classes
        ]
        return markdown(("", "seed", "class", "workers", "updates applied"), rows) if rows else ""


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; cells are text without line breaks."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


PUBLISHED = Column("paper", lambda line, _: as_decimal(line.series.accuracy, 2))
CRASHED = Column(
    "workers crashed by the end (a number for each seed)",
    lambda line, _: (
        ", ".join(f"{run.result.crashed} of {run.result.workers}" for run in line.runs) or UNKNOWN
    ),
)


def greatest(heading: str, window: int = 1) -> Column:
    """Make a column of the greatest accuracies: mean, least and greatest over the seeds."""
    return Column(heading, lambda line, _: as_range(Spread.of(line.greatest(window).values())))


def last(heading: str, measure: str = "accuracy") -> Column:
    """Make a column of the values at the end: mean and standard deviation over the seeds."""
    return Column(heading, lambda line, _: as_deviation(Spread.of(line.last(measure).values())))


def average(heading: str, measure: str, part: int = 0, parts: int = 1) -> Column:
    """Make a column of a diagnostic's mean over a part of training, of several equal parts.

    It has the mean and the standard deviation over the seeds.
    """
    return Column(
        heading, lambda line, _: as_deviation(Spread.of(line.mean(measure, part, parts).values()))
    )


def difference(window: int = 1) -> Column:
    """Make a column of the points by which the greatest accuracies differ from the paper's."""

    def cell(line: Line, _: Lines) -> str:
        spread, paper = Spread.of(line.greatest(window).values()), line.series.accuracy
        return UNKNOWN if spread is None or paper is None else f"{spread.mean - paper:+.2f}"

    return Column("points", cell)


def as_range(spread: Spread | None) -> str:
    """Return the mean with the least and the greatest value."""
    if spread is None:
        return UNKNOWN
    if spread.count == 1:
        return f"{spread.mean:.2f} (1 seed)"
    return f"{spread.mean:.2f} ({spread.low:.2f}–{spread.high:.2f}, {spread.count} seeds)"


def as_deviation(spread: Spread | None) -> str:
    """Return the mean with the standard deviation."""
    if spread is None:
        return UNKNOWN
    if spread.deviation is None:
        return f"{spread.mean:.2f} (1 seed)"
    return f"{spread.mean:.2f} ± {spread.deviation:.2f} ({spread.count} seeds)"


def of_reaching(values: Mapping[int, float]) -> str:
    """Return mean and deviation of the seeds that reach a target, and how many do not.

    Args:
        values: by seed what it takes; infinite where it is not reached.
    """
    known = [value for value in values.values() if math.isfinite(value)]
    if not known:
        return f"none of {len(values)} seeds" if values else UNKNOWN
    few = f"; {len(known)} of {len(values)} seeds reach it" * (len(known) < len(values))
    return as_deviation(Spread.of(known)) + few


def reached(target: Target, window: int = 1) -> Column:
    """Make a column of the number of runs that reach a target."""

    def cell(line: Line, _: Lines) -> str:
        found = line.attempts(target, window)
        return f"{found.reached} of {found.runs}" if found.runs else UNKNOWN

    return Column("runs that reached it", cell)


def spent(cost: str, target: Target, window: int = 1) -> Column:
    """Make a column of what reaching a target costs; ``cost`` is one of ``measures.COSTS``."""

    def cell(line: Line, _: Lines) -> str:
        at = line.attempts(target, window).mean
        return _marked(line, None if at is None else getattr(at, cost), cost)

    return Column(_NAMES[cost], cell)


def seconds_to(target: Target) -> Column:
    """Make a column of the seconds to a target: mean and deviation of the seeds that reach it."""

    return Column(f"seconds to {target}", lambda line, _: of_reaching(line.seconds_to(target)))


def share_of(
    baseline: str,
    heading: str,
    target: Target,
    window: int = 1,
    of: Callable[[Reached], float] = lambda reached: reached.wire_bytes,
) -> Column:
    """Make a column of the wire bytes to a target as a share of the baseline's with the same seeds.

    Args:
        baseline: the name of the line to compare with.
        of: the baseline's bytes at the target, if they are not its wire bytes.
    """

    def cell(line: Line, lines: Lines) -> str:
        if baseline not in lines:
            return as_fraction(None)
        both = both_reaching(lines[baseline], line, target, window)
        return as_fraction(None if both is None else both[1].wire_bytes / of(both[0]))

    return Column(heading, cell)


def total(cost: str) -> Column:
    """Make a column of what runs have spent by their last evaluation; the mean over the seeds."""

    def cell(line: Line, _: Lines) -> str:
        ends = [getattr(run.evaluations, cost)[-1] for run in line.runs]
        return _marked(line, float(np.mean(ends)) if ends else None, cost)

    return Column(_NAMES[cost], cell)


def _marked(line: Line, value: float | None, cost: str) -> str:
    """Return a cost as text; wire bytes are marked if they were modelled."""
    modelled = cost == "wire_bytes" and line.modelled and value is not None
    return as_cost(value, cost) + " (modelled)" * modelled


def runs(lines: Lines) -> str:
    """Return a table of all runs: host, wall time, final parameters, code."""
    rows = [
        (
            line.series.title,
            str(run.seed),
            run.result.engine,
            f"{run.result.cpus or '?'} × {run.result.cpu or 'unknown'}",
            as_duration(run.result.wall_seconds),
            as_decimal(run.result.updates_per_second, 0),
            run.result.wire,
            f"`{run.result.parameters_sha256}`",
            _twin(run, line.twins.get(run.seed)),
            f"`{run.result.commit or 'unknown'}`",
        )
        for line in lines.values()
        for run in line.runs
    ]
    headings = "run|seed|engine|host|wall time|updates/s|wire bytes|parameters|simulator|code"
    return markdown(headings.split("|"), rows) if rows else "No run is complete."


def _twin(run: Record, simulated: Record | None) -> str:
    """Return in words how the simulation of an emulated run compares with it."""
    if run.simulated:
        return "is it"
    if simulated is None:
        return "not run"
    if run.result.cpu != simulated.result.cpu:
        return "on another processor, which rounds otherwise"
    a, b = run.evaluations, simulated.evaluations
    if run.result.parameters_sha256 != simulated.result.parameters_sha256:
        return "**differs** (parameters)"
    for name in ("iteration", "accuracy", "payload_bytes"):
        if not np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True):
            return f"**differs** ({name.replace('_', ' ')})"
    ratio = b.wire_bytes[-1] / a.wire_bytes[-1] if a.wire_bytes[-1] else float("nan")
    return f"equal; wire modelled ÷ measured {ratio:.4f}"

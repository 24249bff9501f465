"""Measures of a line's runs, in the paper's terms.

*Final accuracy* is the mean over runs of the greatest accuracy that each reached (§V-C). The paper
plots moving averages over a window that it does not state: ``WINDOW`` evaluations here. Measures are
given both for the raw curve and for the moving average.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reproduction.driver import Order
from reproduction.paper import GOAL, Series
from reproduction.records import Record, Records
from reproduction.runs import identity
from reproduction.scale import load_run

WINDOW = 5
"""Evaluations in a moving average: the one at a point and those before it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean, the least, the greatest and the number of some values."""

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """Return the spread of values; None if there are none."""
        known = [float(value) for value in values]
        return cls(float(np.mean(known)), min(known), max(known), len(known)) if known else None


@dataclass(frozen=True, slots=True)
class Averaged:
    """The moving averages of some runs at the iterations that all were evaluated at.

    Attributes:
        iteration: int64, shape (points,).
        accuracy: percent, shape (runs, points).
        wire_bytes: ingress so far, mean over the runs, shape (points,).
    """

    iteration: npt.NDArray[np.int64]
    accuracy: npt.NDArray[np.float64]
    wire_bytes: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reached:
    """The updates and the ingress with which a run, or the mean of some, first reaches the goal."""

    iteration: float
    payload_bytes: float
    wire_bytes: float

    @classmethod
    def mean(cls, several: Iterable["Reached"]) -> "Reached":
        """Return the mean of at least one."""
        return cls(*map(float, np.mean([astuple(one) for one in several], axis=0)))


@dataclass(frozen=True, slots=True)
class Goal:
    """The points at which a line's runs first reach the goal, each by itself.

    Attributes:
        reached: number of runs that reach it.
        runs: number of runs.
        iteration, payload_bytes, wire_bytes: means over the runs that reach it; None if none does.
    """

    reached: int
    runs: int
    iteration: float | None = None
    payload_bytes: float | None = None
    wire_bytes: float | None = None


def moving_average(
    accuracy: npt.NDArray[np.float64], window: int = WINDOW
) -> npt.NDArray[np.float64]:
    """Return the means of each value and the ``window`` - 1 before it; shape (values - window + 1,)."""
    if len(accuracy) < window:
        return accuracy[:0]
    return np.convolve(accuracy, np.full(window, 1 / window), mode="valid")


@dataclass(frozen=True)
class Line:
    """A line of a figure, or a row of the table, with its complete runs.

    Attributes:
        series: the paper's line or row.
        runs: one for each seed with a complete run, an emulation in preference to a simulation.
        twins: by seed, the simulation of the same run, where ``runs`` has an emulation.
    """

    series: Series
    runs: tuple[Record, ...]
    twins: Mapping[int, Record] = field(default_factory=dict)

    @property
    def final(self) -> Spread | None:
        """The final accuracy, percent."""
        return Spread.of(
            best for run in self.runs if (best := run.evaluations.best_accuracy) is not None
        )

    @property
    def final_averaged(self) -> Spread | None:
        """The final accuracy of the moving average, percent."""
        return Spread.of(row.max() for row in self.averaged.accuracy if len(row))

    @cached_property
    def averaged(self) -> Averaged:
        """The moving averages; they have no points if there is no run."""
        curves = [run.evaluations for run in self.runs]
        points = min((len(curve) for curve in curves), default=0)
        rows = [moving_average(curve.accuracy[:points]) for curve in curves]
        shape = (len(rows), max(0, points - WINDOW + 1))
        wire = [curve.wire_bytes[WINDOW - 1 : points] for curve in curves]
        return Averaged(
            curves[0].iteration[WINDOW - 1 : points] if curves else np.empty(0, np.int64),
            np.array(rows, np.float64).reshape(shape),
            np.mean(wire, axis=0) if curves else np.empty(0),
        )

    @property
    def goal(self) -> Goal:
        """The points at which an evaluation of each run first reaches the goal."""
        return self._goal(1)

    @property
    def averaged_goal(self) -> Goal:
        """The points at which the moving average of each run first reaches the goal."""
        return self._goal(WINDOW)

    def _goal(self, window: int) -> Goal:
        reached = self.goals(window)
        if not reached:
            return Goal(0, len(self.runs))
        return Goal(len(reached), len(self.runs), *astuple(Reached.mean(reached.values())))

    def goals(self, window: int) -> dict[int, Reached]:
        """Find where the moving average of ``window`` evaluations first reaches the goal.

        Returns:
            The points by seed, without the runs that do not reach it.
        """
        found = {}
        for run in self.runs:
            curve = run.evaluations
            reaching = np.flatnonzero(moving_average(curve.accuracy, window) >= GOAL)
            if len(reaching):
                at = int(reaching[0]) + window - 1
                columns = (curve.iteration, curve.payload_bytes, curve.wire_bytes)
                found[run.seed] = Reached(*(int(column[at]) for column in columns))
        return found

    def by_seed(self) -> dict[int, float]:
        """Return the greatest accuracy of each seed's run, percent."""
        bests = {run.seed: run.evaluations.best_accuracy for run in self.runs}
        return {seed: best for seed, best in bests.items() if best is not None}

    @property
    def modelled(self) -> bool:
        """True if wire bytes of any of its runs were modelled."""
        return any(run.result.modelled for run in self.runs)


def on_equal_seeds(*lines: Line) -> list[Line]:
    """Return the lines with only the runs of the seeds that all of them have."""
    seeds = set.intersection(*({run.seed for run in line.runs} for line in lines))
    return [
        replace(line, runs=tuple(run for run in line.runs if run.seed in seeds)) for line in lines
    ]


def finals_on_equal_seeds(*lines: Line) -> list[dict[int, float]]:
    """Return each line's final accuracies, percent, by seed, for the seeds that all lines have."""
    by_line = [line.by_seed() for line in lines]
    seeds = sorted(set.intersection(*(set(finals) for finals in by_line)))
    return [{seed: finals[seed] for seed in seeds} for finals in by_line]


def goals_on_equal_seeds(a: Line, b: Line, window: int) -> tuple[Reached, Reached] | None:
    """Return where two lines reach the goal, in the mean of the seeds with which both do, or None."""
    first, second = a.goals(window), b.goals(window)
    seeds = first.keys() & second.keys()
    if not seeds:
        return None
    return Reached.mean(first[s] for s in seeds), Reached.mean(second[s] for s in seeds)


def lines_of(series: Sequence[Series], order: Order, records: Records) -> dict[str, Line]:
    """Return the lines of a part by name, with the recorded runs of the order's and the scale's seeds.

    Raises:
        SpecError: an experiment file cannot be used.
    """
    found = {}
    for one in series:
        runs: list[Record] = []
        twins: dict[int, Record] = {}
        for seed in sorted({*order.seeds, *order.scale.seeds}):
            known = records.of(identity(load_run(one, order.scale, seed)))
            runs += known[:1]
            if simulated := [record for record in known[1:] if record.simulated]:
                twins[seed] = simulated[0]
        found[one.name] = Line(one, tuple(runs), twins)
    return found

"""Measures of the runs of a line: final values, moving averages, and what reaching a target costs.

A paper takes the greatest accuracy that a run reached, or that of its end; a single evaluation, or a
moving average. Measures are therefore given for windows of several evaluations: the one at a point and
those before it. What an algorithm reports of itself, such as its gap, is a measure by its own name, of
the parts of a run that its record keeps (``reproduction.diagnosed``) in place of evaluations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from reproduction.record import Record
from reproduction.records import Records
from reproduction.runs import RunsOfLines, Setting
from reproduction.series import Scale, Series

Floats: TypeAlias = npt.NDArray[np.float64]
MOMENTS = 120
"""Points of a curve over time that is the mean of several seeds."""
COSTS = ("iteration", "time", "payload_bytes", "wire_bytes")
"""The costs of a run: updates, seconds, bytes."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean, the least, the greatest, the standard deviation and the number of some values.

    Attributes:
        deviation: that of a sample; None of a single value.
    """

    mean: float
    low: float
    high: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """Return the spread of values; None if there are none."""
        known = [float(value) for value in values]
        if not known:
            return None
        deviation = float(np.std(known, ddof=1)) if len(known) > 1 else None
        return cls(float(np.mean(known)), min(known), max(known), deviation, len(known))


@dataclass(frozen=True, slots=True)
class Averaged:
    """The moving averages of some runs at the iterations that all were evaluated at.

    Attributes:
        values: accuracy in percent, loss, or a diagnostic; shape (runs, points).
        costs: by their names in ``COSTS`` the means over the runs, shape (points,).
    """

    values: Floats
    costs: Mapping[str, Floats]

    def __len__(self) -> int:
        return int(self.values.shape[1])


@dataclass(frozen=True, slots=True)
class Target:
    """A value to reach: an accuracy of at least so many percent, or a loss of at most so much."""

    value: float
    measure: str = "accuracy"

    def __str__(self) -> str:
        if self.measure == "accuracy":
            return f"{self.value:g} %"
        return f"{self.measure.replace('_', ' ')} {self.value:g}"

    def met_by(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Return which values are as good as the target or better."""
        return values >= self.value if self.measure == "accuracy" else values <= self.value


@dataclass(frozen=True, slots=True)
class Reached:
    """The cost of a run, or of the mean of some, when it first reaches a target."""

    iteration: float
    time: float
    payload_bytes: float
    wire_bytes: float

    def cost(self, name: str) -> float:
        """Return one of the costs in ``COSTS``."""
        return float(getattr(self, name))

    @classmethod
    def mean(cls, several: Iterable["Reached"]) -> "Reached":
        """Return the mean of at least one."""
        rows = [[getattr(one, cost) for cost in COSTS] for one in several]
        return cls(*map(float, np.mean(rows, axis=0)))


@dataclass(frozen=True, slots=True)
class Attempts:
    """The number of a line's runs that reach a target, and the point at which they do.

    Attributes:
        reached: number of runs that reach it.
        runs: number of runs.
        mean: the mean over the runs that reach it; None if none does.
    """

    reached: int
    runs: int
    mean: Reached | None = None


def moving_average(values: Floats, window: int) -> Floats:
    """Return the means of each value and the ``window`` - 1 before it; shape (values - window + 1,)."""
    if len(values) < window:
        return values[:0]
    return np.convolve(values, np.full(window, 1 / window), mode="valid")


@dataclass(frozen=True)
class Line:
    """A line of a figure, or a row of a table, with its complete runs.

    Attributes:
        series: the paper's line or row.
        runs: one for each seed with a complete run, an emulation in preference to a simulation.
        twins: by seed, the simulation of the same run, where ``runs`` has an emulation.
    """

    series: Series
    runs: tuple[Record, ...]
    twins: Mapping[int, Record] = field(default_factory=dict)

    def averaged(self, window: int, measure: str = "accuracy") -> Averaged:
        """Return the moving averages; they have no points if no run has the measure.

        Args:
            measure: ``accuracy``, ``loss``, or the name of an exact value or a diagnostic.
        """
        curves = [curve for run in self.runs if (curve := _curve(run, measure)) is not None]
        points = min((len(values) for values, _ in curves), default=0)
        rows = [moving_average(values[:points], window) for values, _ in curves]
        shape = (len(rows), max(0, points - window + 1))
        costs = {
            cost: np.mean([costs[cost][window - 1 : points] for _, costs in curves], axis=0)
            if curves
            else np.empty(0)
            for cost in COSTS
        }
        return Averaged(np.array(rows, np.float64).reshape(shape), costs)

    def mean(self, measure: str, part: int = 0, parts: int = 1) -> dict[int, float]:
        """Return the mean of a diagnostic over a part of each seed's run, of several equal parts."""
        found = {}
        for run in self.runs:
            values = run.diagnostics.values.get(measure, np.empty(0))
            if len(known := _known(np.array_split(values, parts)[part])):
                found[run.seed] = float(known.mean())
        return found

    def greatest(self, window: int = 1) -> dict[int, float]:
        """Return the greatest accuracy, percent, that each seed's run reached."""
        found = {}
        for run in self.runs:
            averages = moving_average(run.evaluations.accuracy, window)
            if len(known := _known(averages)):
                found[run.seed] = float(known.max())
        return found

    def last(self, measure: str = "accuracy") -> dict[int, float]:
        """Return the value of each seed's last evaluation, of the runs that have the measure."""
        curves = {run.seed: _curve(run, measure) for run in self.runs}
        return {seed: float(curve[0][-1]) for seed, curve in curves.items() if curve}

    def reaching(self, target: Target, window: int = 1) -> dict[int, Reached]:
        """Return by seed where the moving average first reaches a target, if it does."""
        found = {}
        for run in self.runs:
            curve = _curve(run, target.measure)
            if curve is None:
                continue
            values, costs = curve
            reached = np.flatnonzero(target.met_by(moving_average(values, window)))
            if len(reached):
                at = int(reached[0]) + window - 1
                found[run.seed] = Reached(*(float(costs[cost][at]) for cost in COSTS))
        return found

    def seconds_to(self, target: Target) -> dict[int, float]:
        """Return by seed the seconds to a target; see ``spent_to``."""
        return self.spent_to(target, "time")

    def spent_to(self, target: Target, cost: str) -> dict[int, float]:
        """Return by seed what reaching a target costs, infinite if the run does not reach it.

        Between two evaluations, of which the second is the first that meets it, it is interpolated:
        lines whose evaluations are farther apart would come later otherwise.

        Args:
            cost: one of ``COSTS``.
        """
        found = {}
        for run in self.runs:
            curve = _curve(run, target.measure)
            if curve is not None:
                found[run.seed] = _crossing(curve[1][cost], curve[0], target)
        return found

    def within(self, measure: str, start: float, end: float) -> dict[int, float]:
        """Return by seed the mean of a measure between two moments, in seconds, where it is known."""
        found = {}
        for run in self.runs:
            curve = _curve(run, measure)
            if curve is not None:
                values, time = curve[0], curve[1]["time"]
                if len(known := _known(values[(start <= time) & (time < end)])):
                    found[run.seed] = float(known.mean())
        return found

    def over_time(self, window: int, measure: str = "accuracy") -> Averaged:
        """Return the moving averages at ``MOMENTS`` equal steps of time, up to the shortest run's end.

        Seeds are compared at the same second, and not at the same update.
        """
        curves = [curve for run in self.runs if (curve := _curve(run, measure)) is not None]
        averages = [
            (moving_average(values, window), costs["time"][window - 1 :])
            for values, costs in curves
        ]
        if not averages or not all(len(values) for values, _ in averages):
            return Averaged(np.empty((len(averages), 0)), dict.fromkeys(COSTS, np.empty(0)))
        first = max(float(time[0]) for _, time in averages)
        moments = np.linspace(first, min(float(time[-1]) for _, time in averages), MOMENTS)
        rows = [np.interp(moments, time, values) for values, time in averages]
        costs = {
            cost: np.mean(
                [np.interp(moments, costs["time"], costs[cost]) for _, costs in curves], axis=0
            )
            for cost in COSTS
        }
        return Averaged(np.array(rows), costs)

    def attempts(self, target: Target, window: int = 1) -> Attempts:
        """Return how many runs reach a target, each by itself, and the mean of where they do."""
        reached = self.reaching(target, window).values()
        return Attempts(len(reached), len(self.runs), Reached.mean(reached) if reached else None)

    @property
    def modelled(self) -> bool:
        """True if wire bytes of any of its runs were modelled."""
        return any(run.result.modelled for run in self.runs)


def _known(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _curve(run: Record, measure: str) -> tuple[Floats, Mapping[str, Floats]] | None:
    """Return a measure of a run over its points, and their costs; None if the run does not have it.

    Costs between two evaluations, where diagnostics are, are interpolated.
    """
    evaluated = run.evaluations
    if measure in ("accuracy", "loss", *COSTS, *evaluated.exact):
        values = evaluated.exact.get(measure)
        values = getattr(evaluated, measure) if values is None else values
        return values, {cost: getattr(evaluated, cost) for cost in COSTS}
    values = run.diagnostics.values.get(measure)
    if values is None:
        return None
    at = run.diagnostics.iteration
    known = evaluated.iteration
    return values, {cost: np.interp(at, known, getattr(evaluated, cost)) for cost in COSTS}


def _crossing(costs: Floats, values: Floats, target: Target) -> float:
    """Return the cost at which values meet a target; infinite if they never do."""
    met = np.flatnonzero(target.met_by(values))
    if not len(met):
        return float("inf")
    at = int(met[0])
    if at == 0 or not np.isfinite(values[at - 1]):
        return float(costs[at])
    share = (target.value - values[at - 1]) / (values[at] - values[at - 1])
    return float(costs[at - 1] + share * (costs[at] - costs[at - 1]))


Lines: TypeAlias = Mapping[str, Line]
"""The lines of a part by name, in the paper's order."""


def common(*by_seed: Mapping[int, float]) -> list[dict[int, float]]:
    """Return each line's values by seed, for the seeds that all lines have."""
    seeds = sorted(set.intersection(*(set(values) for values in by_seed)))
    return [{seed: values[seed] for seed in seeds} for values in by_seed]


def both_reaching(a: Line, b: Line, target: Target, window: int) -> tuple[Reached, Reached] | None:
    """Return where two lines reach a target, in the mean of the seeds with which both do, or None."""
    first, second = a.reaching(target, window), b.reaching(target, window)
    seeds = first.keys() & second.keys()
    if not seeds:
        return None
    return Reached.mean(first[s] for s in seeds), Reached.mean(second[s] for s in seeds)


def lines_of(
    series: Iterable[Series], scale: Scale, seeds: Sequence[int], records: Records
) -> dict[str, Line]:
    """Return lines by name, with the recorded runs of the seeds.

    Raises:
        SpecError: an experiment file cannot be used.
    """
    return lines_with(series, RunsOfLines(Setting(scale, tuple(seeds))), records)


def lines_with(
    series: Iterable[Series], runs_of_lines: RunsOfLines, records: Records
) -> dict[str, Line]:
    """Return lines by name, with the recorded ones of their runs.

    Raises:
        SpecError: an experiment file cannot be used.
    """
    lines = tuple(series)
    runs: dict[str, list[Record]] = {one.name: [] for one in lines}
    twins: dict[str, dict[int, Record]] = {one.name: {} for one in lines}
    for needed in runs_of_lines.of(lines):
        known = records.of(needed.identity)
        runs[needed.series.name] += known[:1]
        if simulated := [record for record in known[1:] if record.simulated]:
            twins[needed.series.name][needed.seed] = simulated[0]
    return {one.name: Line(one, tuple(runs[one.name]), twins[one.name]) for one in lines}

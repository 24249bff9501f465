"""What the runs of a line came to, in the paper's terms.

*Final accuracy* is the mean over runs of the greatest that each reached (§V-C). The paper plots moving
averages of an unstated window: ``WINDOW`` evaluations here. Both are given: of the raw curve and of
the moving average.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reproduction.driver import Order
from reproduction.paper import GOAL, Series
from reproduction.runs import Folder, identity
from reproduction.scale import load_run
from testbed.results.curves import Curve
from testbed.results.reaching import Reach, reaching
from testbed.results.reading import Run

WINDOW = 5
"""Evaluations in a moving average: the one at a point and those before it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Some values: mean, least and greatest, and how many there are."""

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """None of no values."""
        known = [float(value) for value in values]
        return cls(float(np.mean(known)), min(known), max(known), len(known)) if known else None


@dataclass(frozen=True, slots=True)
class Averaged:
    """The moving averages of some runs at the iterations that all were evaluated at.

    Attributes:
        iteration: int64, shape (points,).
        accuracy: percent, shape (runs, points).
        wire_bytes: of the ingress so far, mean over the runs, shape (points,).
    """

    iteration: npt.NDArray[np.int64]
    accuracy: npt.NDArray[np.float64]
    wire_bytes: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AveragedGoal:
    """Where the moving averages of a line's runs first reach the goal.

    Attributes:
        reached: how many do.
        runs: of how many.
        iteration, wire_bytes: means over those that do; None if none does.
    """

    reached: int
    runs: int
    iteration: float | None = None
    wire_bytes: float | None = None


def moving_average(accuracy: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The mean of each value and the ``WINDOW`` - 1 before it; shape (values - WINDOW + 1,)."""
    if len(accuracy) < WINDOW:
        return accuracy[:0]
    return np.convolve(accuracy, np.full(WINDOW, 1 / WINDOW), mode="valid")


@dataclass(frozen=True)
class Line:
    """A line of a figure, or a row of the table, with its complete runs.

    Attributes:
        series: what it is.
        runs: one for each seed that there is, an emulation's before a simulation's.
        twins: an emulation and a simulation of the same run, where there are both.
    """

    series: Series
    runs: tuple[Run, ...]
    twins: tuple[tuple[Run, Run], ...] = ()

    @property
    def final(self) -> Spread | None:
        """Final accuracy, percent."""
        return Spread.of(
            best for run in self.runs if (best := run.evaluations.best_accuracy) is not None
        )

    @property
    def final_averaged(self) -> Spread | None:
        """Final accuracy of the moving average, percent."""
        return Spread.of(row.max() for row in self.averaged.accuracy if len(row))

    @cached_property
    def averaged(self) -> Averaged:
        """The moving averages; without a point where there is no run."""
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
    def averaged_goal(self) -> AveragedGoal:
        """Where each run's own moving average reaches the goal."""
        iterations, wire = [], []
        for run in self.runs:
            curve = run.evaluations
            reaching_it = np.flatnonzero(moving_average(curve.accuracy) >= GOAL)
            if len(reaching_it):
                at = int(reaching_it[0]) + WINDOW - 1
                iterations.append(float(curve.iteration[at]))
                wire.append(float(curve.wire_bytes[at]))
        if not iterations:
            return AveragedGoal(0, len(self.runs))
        means = float(np.mean(iterations)), float(np.mean(wire))
        return AveragedGoal(len(iterations), len(self.runs), *means)

    @property
    def curve(self) -> Curve:
        """The runs as the testbed's tables take them."""
        return Curve(self.series.name, self.runs)

    def by_seed(self) -> dict[int, float]:
        """The greatest accuracy of each seed's run."""
        bests = {run.manifest.seed: run.evaluations.best_accuracy for run in self.runs}
        return {seed: best for seed, best in bests.items() if best is not None}

    @property
    def modelled(self) -> bool:
        """Whether wire bytes of any of its runs were modelled."""
        return any(run.summary.traffic and run.summary.traffic.modelled for run in self.runs)


def lines_of(series: Sequence[Series], order: Order, folder: Folder) -> dict[str, Line]:
    """The lines of a part by name, with whatever runs there are of the order's and the scale's seeds.

    Raises:
        SpecError: an experiment file cannot be used.
    """
    found = {}
    for one in series:
        runs, twins = [], []
        for seed in sorted({*order.seeds, *order.scale.seeds}):
            key = identity(load_run(one, order.scale, seed))
            complete = folder.complete(key)
            runs += complete[:1]
            emulated = [run for run in complete if run.manifest.engine == "emulation"]
            simulated = [run for run in complete if run.manifest.engine == "simulation"]
            twins += list(zip(emulated[:1], simulated[:1], strict=False))
        found[one.name] = Line(one, tuple(runs), tuple(twins))
    return found


def goal_rows(lines: Sequence[Line]) -> dict[str, Reach]:
    """What it took to reach the goal, by series; lines without a run are left out."""
    told = [line for line in lines if line.runs]
    if not told:
        return {}
    baseline = any(line.series.name == "asgd" for line in told)
    rows = reaching([line.curve for line in told], GOAL, "asgd" if baseline else None).rows
    if not baseline:
        # The first would be the baseline, which it is not.
        rows = tuple(replace(row, wire_ratio=None) for row in rows)
    return {line.series.name: row for line, row in zip(told, rows, strict=True)}


def records_of(run: Run, name: str) -> list[dict[str, Any]]:
    """The lines of one of a run's JSON-lines files; none if it has no such file."""
    path = run.directory / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def crashed(run: Run) -> int:
    """Workers that were frozen or killed for good."""
    begun = (
        record
        for record in records_of(run, "faults.jsonl")
        if record["phase"] == "begin" and record["fault"] in ("freeze", "kill")
    )
    return len({device for record in begun for device in record["devices"]})

"""The table of the bytes to reach a goal: AdaComp's Fig. 3 (§V-C: 97 %, "191 times less").

The goal is an accuracy or, where runs are compared by another quality, a value of that. Each run counts
with its first evaluation that is at least as good; a curve of several seeds with the mean over those of
its runs that reached it, and with their number. A curve of which no run did has only its best value,
which, as in the paper, is the mean over its runs of the best of each.
"""

import difflib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testbed import number_text as q
from testbed.errors import SpecError
from testbed.number_text import Measure
from testbed.results.reading import quality as qualities
from testbed.results.reading.curves import MEASURES, Curve
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.quality import Quality

ACCURACY = 97.0
"""The highest accuracy to reach by default, percent: that of the paper's comparison."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where runs of a curve first reach a goal.

    Attributes:
        reached: number of the runs that reach it; the next seven are None if none does.
        iteration: updates applied by then; like the next six, the mean over those runs.
        value: at those evaluations: at least as good as the goal.
        time: seconds since training began, by the run's clock.
        payload_bytes, message_bytes, wire_bytes: ingress by then.
        joules: energy of the devices by then; None if that of one of the runs is not known.
    """

    reached: int
    iteration: float | None
    value: float | None
    time: float | None
    payload_bytes: float | None
    message_bytes: float | None
    wire_bytes: float | None
    joules: float | None

    def cells(self, runs: int) -> tuple[str, ...]:
        """Return it as text: how many of the runs reach the goal, each kind of bytes, updates, time."""
        return (
            f"{self.reached} of {runs}",
            *(q.as_bytes(getattr(self, f"{measure}_bytes")) for measure in MEASURES),
            q.as_count(None if self.iteration is None else round(self.iteration)),
            q.as_duration(self.time),
        )


NEVER = Point(0, *[None] * 7)
"""The point of a goal that no run reaches."""


@dataclass(frozen=True, slots=True)
class Reach(Point):
    """The point where a curve first reached the goal.

    Attributes:
        name: the curve's name.
        runs, seeds: its runs' ids and seeds.
        payload_ratio, message_ratio, wire_ratio: these bytes ÷ the baseline's; None if either did
            not reach the goal.
        best: mean over all the runs of the best of each, None if none has any.
    """

    name: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    payload_ratio: float | None
    message_ratio: float | None
    wire_ratio: float | None
    best: float | None


@dataclass(frozen=True, slots=True)
class Reaching:
    """The updates, bytes and time that each of some curves needs to reach a goal.

    Attributes:
        rows: one for each curve, in the order in which they were given.
        baseline: name of the curve that the ratios refer to.
        quality: by which the curves are compared.
        goal: the value to reach; None if there is none yet.
        measure: the bytes whose ratio is shown.
    """

    rows: tuple[Reach, ...]
    baseline: str
    quality: Quality
    goal: float | None
    measure: Measure

    @property
    def headings(self) -> tuple[str, ...]:
        """The columns' headings."""
        of_baseline = "".join(_of_some(row) for row in self.rows if row.name == self.baseline)
        return (
            self.to_reach,
            "runs that did",
            *MEASURES,
            "updates",
            "time",
            f"{self.measure} ÷ {self.baseline}{of_baseline}",
            f"best {self.quality.heading}",
        )

    def _ratio(self, row: Reach) -> str:
        """Return a ratio, marked if it is one of the luckier runs: those that reached the goal."""
        ratio = getattr(row, f"{self.measure}_ratio")
        return q.as_fraction(ratio) + (_of_some(row) if ratio is not None else "")

    @property
    def to_reach(self) -> str:
        """The goal in words: ``to reach 97 %``, ``to reach perplexity 4.32``."""
        name = "" if self.quality == qualities.ACCURACY else f"{self.quality.name} "
        return f"to reach {name}{self.quality.with_unit(self.goal)}"

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows as text, a cell for each heading."""
        return tuple(
            (
                row.name,
                *row.cells(len(row.runs)),
                self._ratio(row),
                self.quality.text(row.best),
            )
            for row in self.rows
        )


def _of_some(row: Reach) -> str:
    """Return how many of a curve's runs count, in brackets; nothing if all or none do."""
    runs = len(row.runs)
    return f" ({row.reached} of {runs})" if 0 < row.reached < runs else ""


def baseline_of(curves: Sequence[Curve], wanted: str | None = None) -> Curve:
    """Return the curve that the others are compared with.

    Args:
        curves: at least one.
        wanted: a curve's name, an algorithm's label or a run's id; None for the first curve
            labelled ``asgd``, or else the first.

    Raises:
        NoRunError: no curve has that name.
    """
    if wanted is None:
        return next((curve for curve in curves if curve.label == "asgd"), curves[0])
    by_name = [(curve.name, curve) for curve in curves]
    by_label = [(curve.label, curve) for curve in curves]
    by_run = [(run.id, curve) for curve in curves for run in curve.runs]
    for name, curve in (*by_name, *by_label, *by_run):
        if name == wanted:
            return curve
    names = [curve.name for curve in curves]
    nearest = difflib.get_close_matches(wanted, names, n=1, cutoff=0) or names
    raise NoRunError(
        f"no curve here is called {wanted!r}, and the baseline must be one of them: "
        f"{', '.join(names)}; did you mean {nearest[0]}?"
    )


def goal_of(curves: Sequence[Curve], wanted: float | None = None) -> float | None:
    """Return the value that curves have to reach.

    Args:
        curves: at least one, all of one quality.
        wanted: the goal asked for; None for the best value that every run reaches which has not
            diverged: of accuracy the whole percent, at most ``ACCURACY``; of another quality with
            three digits, and None if there is none yet.

    Raises:
        SpecError: the goal cannot be an accuracy.
    """
    quality = curves[0].quality
    if wanted is None:
        runs = [run for one in curves for run in one.runs if run.ended != "diverged"]
        bests = [quality.best(run.evaluations.of(quality)) for run in runs]
        known = [best for best in bests if best is not None]
        last = min if quality.better == "higher" else max
        if quality == qualities.ACCURACY:
            return min(ACCURACY, math.floor(last(known, default=0.0)) or ACCURACY)
        return quality.rounded(last(known)) if known else None
    if quality == qualities.ACCURACY and not 0 <= wanted <= 100:
        raise SpecError(f"an accuracy of {wanted:g} % cannot be reached: it is from 0 to 100")
    return wanted


def reaching(
    curves: Sequence[Curve],
    goal: float | None = None,
    baseline: str | None = None,
    measure: Measure = "wire",
) -> Reaching:
    """Compute the updates, bytes and time that each curve needs to reach a goal.

    Args:
        curves: at least one, all of one quality.
        goal: as for ``goal_of``.
        baseline: as for ``baseline_of``.
        measure: the bytes whose ratio is shown; the rows have all three.

    Raises:
        NoRunError: a journal cannot be read, or no curve has the baseline's name.
        SpecError: the goal cannot be an accuracy.
    """
    base, goal = baseline_of(curves, baseline), goal_of(curves, goal)
    of_base = _reached(base, goal)
    rows = []
    for curve in curves:
        point = _reached(curve, goal)
        ratios: dict[str, Any] = {
            f"{name}_ratio": _ratio(point, of_base, f"{name}_bytes") for name in MEASURES
        }
        own = [curve.quality.best(run.evaluations.of(curve.quality)) for run in curve.runs]
        bests = [best for best in own if best is not None]
        rows.append(
            Reach(
                name=curve.name,
                runs=tuple(run.id for run in curve.runs),
                seeds=tuple(run.manifest.seed for run in curve.runs),
                best=float(np.mean(bests)) if bests else None,
                **asdict(point),
                **ratios,
            )
        )
    return Reaching(tuple(rows), base.name, base.quality, goal, measure)


def records(table: Reaching) -> dict[str, object]:
    """Return the table for ``json.dumps``: exact numbers, null for unknown values.

    The goal, and the values of the rows, are called by the quality's name: ``accuracy``,
    ``best_accuracy``; or ``perplexity``, ``best_perplexity``.
    """
    name = table.quality.name
    called = {"value": name, "best": f"best_{name}"}
    return {
        name: table.goal,
        "baseline": table.baseline,
        "curves": [
            {called.get(key, key): value for key, value in asdict(row).items()}
            for row in table.rows
        ],
    }


def steps_of(curve: Curve) -> dict[float, Point]:
    """Return by goal where a curve reaches it, for each goal at which that changes, the easiest first.

    Any other goal is reached where the next harder one here is.
    """
    higher = curve.quality.better == "higher"
    best = np.maximum if higher else np.minimum
    goals: set[float] = set()
    for run in curve.runs:
        values = run.evaluations.of(curve.quality)
        goals |= set(best.accumulate(values[np.isfinite(values)]).tolist())
    return {goal: _reached(curve, goal) for goal in sorted(goals, reverse=not higher)}


def _reached(curve: Curve, goal: float | None) -> Point:
    quality = curve.quality
    first = [(run.evaluations, run.evaluations.first_reaching(goal, quality)) for run in curve.runs]
    points = [(evaluations, i) for evaluations, i in first if i is not None]

    def mean(values: list[Any]) -> float | None:
        return float(np.mean(values)) if values and np.isfinite(values).all() else None

    columns = ("iteration", "time", "joules", *(f"{measure}_bytes" for measure in MEASURES))
    return Point(
        reached=len(points),
        value=mean([found.of(quality)[i] for found, i in points]),
        **{name: mean([getattr(found, name)[i] for found, i in points]) for name in columns},
    )


def _ratio(point: Point, baseline: Point, name: str) -> float | None:
    """Return a ratio; None if either is unknown or 0 (if the initial parameters reach the goal)."""
    value, base = getattr(point, name), getattr(baseline, name)
    return value / base if value and base else None

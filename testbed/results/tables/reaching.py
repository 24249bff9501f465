"""The table of the bytes to reach an accuracy: AdaComp's Fig. 3 (§V-C: 97 %, "191 times less").

Each run counts with its first evaluation that reached the accuracy; a curve of several seeds with the
mean over those of its runs that reached it, and with their number. A curve of which no run did has
only its best accuracy, which, as in the paper, is the mean over its runs of the best of each.
"""

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testbed import quantities as q
from testbed.quantities import Measure
from testbed.results.reading.curves import MEASURES, Curve
from testbed.results.reading.journals import NoRunError

ACCURACY = 97.0
"""The accuracy to reach by default, percent: that of the paper's comparison."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The point where a curve first reached the accuracy asked for.

    Attributes:
        name: the curve's name.
        runs, seeds: its runs' ids and seeds.
        reached: number of the runs that reached the accuracy; the next five are None if none did.
        iteration: updates applied by then; like the next four, the mean over those runs.
        accuracy: percent, at those evaluations: at least the accuracy asked for.
        payload_bytes, message_bytes, wire_bytes: ingress by then.
        payload_ratio, message_ratio, wire_ratio: these bytes ÷ the baseline's; None if either did
            not reach the accuracy.
        best_accuracy: percent; mean over all the runs of the best of each, None if none has any.
    """

    name: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    reached: int
    iteration: float | None
    accuracy: float | None
    payload_bytes: float | None
    message_bytes: float | None
    wire_bytes: float | None
    payload_ratio: float | None
    message_ratio: float | None
    wire_ratio: float | None
    best_accuracy: float | None


@dataclass(frozen=True, slots=True)
class Reaching:
    """The updates and bytes that each of some curves needs to reach an accuracy.

    Attributes:
        rows: one for each curve, in the order in which they were given.
        baseline: name of the curve that the ratios refer to.
        accuracy: the accuracy to reach, percent.
        measure: the bytes whose ratio is shown.
    """

    rows: tuple[Reach, ...]
    baseline: str
    accuracy: float
    measure: Measure

    @property
    def headings(self) -> tuple[str, ...]:
        """The columns' headings."""
        return (
            f"to reach {self.accuracy:g} %",
            "runs that did",
            *MEASURES,
            "updates",
            f"{self.measure} ÷ {self.baseline}",
            "best %",
        )

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows as text, a cell for each heading."""
        return tuple(
            (
                row.name,
                f"{row.reached} of {len(row.runs)}",
                *(q.as_bytes(getattr(row, f"{measure}_bytes")) for measure in MEASURES),
                q.as_count(None if row.iteration is None else round(row.iteration)),
                q.as_fraction(getattr(row, f"{self.measure}_ratio")),
                q.as_decimal(row.best_accuracy, 2),
            )
            for row in self.rows
        )


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


def reaching(
    curves: Sequence[Curve],
    accuracy: float,
    baseline: str | None = None,
    measure: Measure = "wire",
) -> Reaching:
    """Compute the updates and bytes that each curve needs to reach an accuracy.

    Args:
        curves: at least one.
        accuracy: percent.
        baseline: as for ``baseline_of``.
        measure: the bytes whose ratio is shown; the rows have all three.

    Raises:
        NoRunError: a journal cannot be read, or no curve has the baseline's name.
    """
    base = baseline_of(curves, baseline)
    of_base = _reached(base, accuracy)
    rows = []
    for curve in curves:
        values = _reached(curve, accuracy)
        ratios: dict[str, Any] = {
            f"{name}_ratio": _ratio(values, of_base, f"{name}_bytes") for name in MEASURES
        }
        bests = [best for run in curve.runs if (best := run.evaluations.best_accuracy) is not None]
        rows.append(
            Reach(
                name=curve.name,
                runs=tuple(run.id for run in curve.runs),
                seeds=tuple(run.manifest.seed for run in curve.runs),
                best_accuracy=float(np.mean(bests)) if bests else None,
                **values,
                **ratios,
            )
        )
    return Reaching(tuple(rows), base.name, accuracy, measure)


def records(table: Reaching) -> dict[str, Any]:
    """Return the table for ``json.dumps``: exact numbers, null for unknown values."""
    return {
        "accuracy": table.accuracy,
        "baseline": table.baseline,
        "curves": [asdict(row) for row in table.rows],
    }


def _reached(curve: Curve, accuracy: float) -> dict[str, Any]:
    """Return ``reached`` and the fields of ``Reach`` that are means over the runs that reached it."""
    first = [(run.evaluations, run.evaluations.first_reaching(accuracy)) for run in curve.runs]
    points = [(evaluations, i) for evaluations, i in first if i is not None]
    names = ("iteration", "accuracy", *(f"{measure}_bytes" for measure in MEASURES))
    means = {
        name: float(np.mean([getattr(evaluations, name)[i] for evaluations, i in points]))
        if points
        else None
        for name in names
    }
    return {"reached": len(points), **means}


def _ratio(values: dict[str, Any], baseline: dict[str, Any], name: str) -> float | None:
    """Return a ratio; None if either is unknown or 0 (if the initial parameters have the accuracy)."""
    return values[name] / baseline[name] if values[name] and baseline[name] else None

"""The numbers that an algorithm reports with each update, such as its gap or its k, thinned.

A run directory has a row for each update; a record has the means of ``POINTS`` equal parts of the
run, so that it stays small enough to be committed and still shows what changes over training.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

POINTS = 100
"""Parts of a run that have a mean each; a run of fewer updates has one for each update."""
_DIGITS = 5
"""Significant digits of a mean: pages print four."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The thinned diagnostics of a run; without a name if its algorithm reports none.

    Attributes:
        iteration: int64, shape (points,), the last update of each part.
        values: by the diagnostics' names their means over the parts, float64, shape (points,); NaN
            where no update of a part has a known value.
    """

    iteration: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    values: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)


def thinned(diagnostics: Mapping[str, npt.NDArray[np.float64]]) -> Diagnosed:
    """Return the means over equal parts of a run.

    Args:
        diagnostics: by name a value for each update, as ``Run.diagnostics`` has them.
    """
    updates = min((len(column) for column in diagnostics.values()), default=0)
    if not updates:
        return Diagnosed()
    ends = np.linspace(0, updates, min(POINTS, updates) + 1).round().astype(np.int64)
    values = {
        name: to_digits([_mean(part) for part in np.split(column[:updates], ends[1:-1])], _DIGITS)
        for name, column in diagnostics.items()
    }
    return Diagnosed(ends[1:], values)


def _mean(values: npt.NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def to_digits(values: Iterable[float], digits: int) -> npt.NDArray[np.float64]:
    """Return values rounded to a number of significant digits, shape (values,)."""
    return np.array([float(f"{value:.{digits}g}") for value in values], np.float64)

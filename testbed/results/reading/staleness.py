"""Histograms of staleness: the number of updates applied between a pull and its push."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.results.reading.curves import Curve, Floats

_BARS = 60
"""Maximum number of bars, so that a histogram is legible with hundreds of workers."""


@dataclass(frozen=True, slots=True)
class Histograms:
    """The staleness of the updates of some curves, in bars of one width.

    Attributes:
        width: width of a bar, in updates; the first begins at 0.
        shares: for each curve, percent of its updates in each bar, float64, shape (bars,); as many
            bars as it needs, none without updates.
    """

    width: int
    shares: tuple[Floats, ...]


def histograms(curves: Sequence[Curve]) -> Histograms:
    """Return the curves' histograms, the updates of all seeds of a curve taken together.

    Raises:
        NoRunError: a journal has another format.
    """
    staleness = [np.concatenate([run.staleness for run in curve.runs]) for curve in curves]
    largest = max((int(of_curve.max()) for of_curve in staleness if len(of_curve)), default=0)
    width = max(1, -(-(largest + 1) // _BARS))
    shares = tuple(
        100 * np.bincount(of_curve // width) / max(1, len(of_curve)) for of_curve in staleness
    )
    return Histograms(width, shares)

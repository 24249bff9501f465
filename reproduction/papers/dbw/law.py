"""Fig. 7: the distribution of the law of round-trip times that stands in for the paper's trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reproduction.drawing import Places
from reproduction.measures import Lines
from reproduction.series import Scale
from testbed.durations.laws import Pareto
from testbed.results.figures.chart import Axis, Panel, Plot, Series

LAW = Pareto(mean=1.0, shape=2.5)
"""That of ``compute`` in the files of Fig. 8."""
_DRAWN = 10_000
_SHARES = np.linspace(0.01, 0.99, 99)


def measure(_: Scale) -> list[dict[str, object]]:
    """Return quantiles of times that are drawn from the law: rows of a share and seconds."""
    stream = np.random.default_rng(1)
    times = np.quantile([LAW.sample(stream) for _ in range(_DRAWN)], _SHARES)
    return [
        {"share": f"{share:.2f}", "seconds": f"{seconds:.6g}"}
        for share, seconds in zip(_SHARES, times, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A panel of the share of round trips that take at most so long.

    Attributes:
        rows: those of ``measure``.
    """

    rows: Sequence[Mapping[str, str]]

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return the empirical distribution."""
        seconds, shares = (
            np.array([float(row[name]) for row in self.rows]) for name in ("seconds", "share")
        )
        series = Series("Pareto", seconds, shares, places["Pareto"])
        return Plot(Axis("round-trip time (s)", low=0), (Panel(Axis("share"), (series,)),))

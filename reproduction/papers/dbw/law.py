"""Fig. 7: the distribution of the law of round-trip times that stands in for the paper's trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reproduction.drawing import Places
from reproduction.measures import Lines
from reproduction.series import Scale
from testbed.durations.laws import Pareto
from testbed.results.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

    def has_points(self, lines: Lines) -> bool:
        """Return True if there are rows."""
        return bool(self.rows)

    def draw(self, axes: "Axes", lines: Lines, places: Places) -> None:
        """Draw the empirical distribution."""
        seconds, shares = ([float(row[name]) for row in self.rows] for name in ("seconds", "share"))
        axes.plot(seconds, shares, label="Pareto", **style.line_style(places["Pareto"]))
        axes.set_xlim(left=0)
        axes.set_xlabel("round-trip time (s)")
        axes.set_ylabel("share")

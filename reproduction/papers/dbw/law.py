"""Fig. 7: the distribution of the law of round-trip times that stands in for the paper's trace."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reproduction.measures import Lines
from testbed.durations.laws import Pareto
from testbed.results.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Distribution:
    """A panel of the share of round trips that take at most so long, by the Pareto law.

    Attributes:
        mean: seconds.
        shape: the exponent.
    """

    mean: float
    shape: float

    def has_points(self, lines: Lines) -> bool:
        """Return True: it needs no run."""
        return True

    def draw(self, axes: "Axes", lines: Lines) -> None:
        """Draw the distribution."""
        law = Pareto(mean=self.mean, shape=self.shape)
        shares = np.linspace(0, 0.999, 500)
        times = [law.quantile(share) for share in shares]
        axes.plot(times, shares, label="Pareto", **style.line_style(0))
        axes.set_xlim(0, 8 * self.mean)
        axes.set_xlabel("round-trip time (s)")
        axes.set_ylabel("share")

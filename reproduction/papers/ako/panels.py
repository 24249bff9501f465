"""Fig. 12b: the use of the network by the number of partitions, measured beside predicted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reproduction.claims import mean
from reproduction.drawing import Places
from reproduction.measures import Lines
from reproduction.papers.ako.claims import bandwidth, predicted
from reproduction.papers.ako.scales import as_rate
from testbed.results.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Usage:
    """A panel of what a peer receives and of what equation (3) makes of it; a line is the link's rate.

    Attributes:
        names: of the lines, by p.
    """

    names: Mapping[float, str]

    def has_points(self, lines: Lines) -> bool:
        """Return True if a line has a run."""
        return any(lines[name].runs for name in self.names.values())

    def draw(self, axes: "Axes", lines: Lines, places: Places) -> None:
        """Draw the mean over seeds at each p."""
        there = {p: lines[name] for p, name in self.names.items() if lines[name].runs}
        specs = {p: line.runs[0].spec for p, line in there.items()}
        curves = {
            "measured": [mean(bandwidth(line)) for line in there.values()],
            "predicted": [predicted(spec, p) for p, spec in specs.items()],
        }
        for title, values in curves.items():
            place = places[title]
            look = style.line_style(place)
            axes.plot(list(there), values, label=title, marker=style.marker(place), **look)
        rate = next(iter(specs.values()), None)
        if rate is not None:
            axes.axhline(as_rate(rate) / 1e6, color="#777777", linewidth=0.6)
        axes.set_xticks(sorted(self.names))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("partitions p")
        axes.set_ylabel("received by a peer (Mbit/s)")

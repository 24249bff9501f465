"""Fig. 12b: the use of the network by the number of partitions, measured beside predicted."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reproduction.claims import mean
from reproduction.drawing import Places
from reproduction.measures import Lines
from reproduction.papers.ako.claims import bandwidth, predicted
from reproduction.papers.ako.scales import as_rate
from testbed.results.figures.chart import Across, Axis, Panel, Plot, Series


@dataclass(frozen=True, slots=True)
class Usage:
    """A panel of what a peer receives and of what equation (3) makes of it; a line is the link's rate.

    Attributes:
        names: of the lines, by p.
    """

    names: Mapping[float, str]

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return the mean over seeds at each p."""
        there = {p: lines[name] for p, name in self.names.items() if lines[name].runs}
        specs = {p: line.runs[0].spec for p, line in there.items()}
        curves = {
            "measured": [mean(bandwidth(line)) for line in there.values()],
            "predicted": [predicted(spec, p) for p, spec in specs.items()],
        }
        at = np.array(list(there), dtype=float)
        series = tuple(
            Series(title, at, np.array(values), places[title], markers=True)
            for title, values in curves.items()
        )
        rates = tuple(Across("y", as_rate(spec) / 1e6) for spec in [*specs.values()][:1])
        panel = Panel(Axis("received by a peer (Mbit/s)", low=0), series, rates)
        ticks = {p: f"{p:g}" for p in sorted(self.names)}
        return Plot(Axis("partitions p", ticks=ticks), (panel,))

"""The use of the network: over time (Fig. 11), and by p, beside what is predicted (Fig. 12b)."""

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


@dataclass(frozen=True, slots=True)
class Traffic:
    """A panel of the bytes that enter all peers, or all servers, in a second, over time."""

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return the mean over seeds between each two evaluations."""
        series = []
        for line in (one for one in lines.values() if one.runs):
            curves = [run.evaluations for run in line.runs]
            rates = [np.diff(one.wire_bytes) / np.diff(one.time) / 1e6 for one in curves]
            middles = [(one.time[1:] + one.time[:-1]) / 2 for one in curves]
            title = line.series.title
            at, rate = np.mean(middles, axis=0), np.mean(rates, axis=0)
            series.append(Series(title, at, rate, places[title]))
        return Plot(Axis("time (s)", low=0), (Panel(Axis("ingress (MB/s)", low=0), tuple(series)),))

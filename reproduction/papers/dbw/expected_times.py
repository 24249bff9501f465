"""Fig. 3: the time that is expected of waiting for k gradients, by both estimators of §3.2.

A record has the moment of every version, as each is evaluated. All arrivals follow from these moments
and from the round trips, which are drawn from streams that the seed names: a worker that has finished a
gradient begins the next one at the newest version, and waits if it has computed that (Push & Wait; no
time passes on links). So both estimators see what the run's server saw.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from reproduction.claims import Verdict, decided
from reproduction.drawing import UPDATES, Places
from reproduction.measures import Floats, Line, Lines, Spread
from reproduction.record import Record
from reproduction.significance import Sample
from reproduction.tables import as_deviation, markdown
from testbed.algorithms.backup_workers.dynamic import DynamicOptions
from testbed.algorithms.backup_workers.iteration_times import IterationTimes
from testbed.durations import Durations
from testbed.experiment.sections.timing import ComputeSpec
from testbed.results.figures.chart import Across, Axis, Panel, Plot, Series

_ROUNDED = 1e-6
"""Seconds by which moments in records may be off."""
_DRAWN = 200_000
OFTEN = 0.1
"""The least share of updates that counts as "often"."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates that DBW had before each update of a run, from the second update on.

    Attributes:
        k: int64, shape (updates,), the gradients that the update waited for.
        naive: float64, shape (updates, n), the means of the samples t_{k,k}; NaN without samples.
        fitted: float64, shape (updates, n), T̂ by (17).
    """

    k: npt.NDArray[np.int64]
    naive: Floats
    fitted: Floats

    def errors(self, of: Floats) -> Floats:
        """Return how far estimates are from E[T_{k,k}], relative to it; NaN where naive has none."""
        exact = exact_times(of.shape[1])
        return np.where(np.isnan(self.naive), np.nan, np.abs(of - exact) / exact)

    def gained(self) -> float:
        """Return by how much the mean error of (17) is smaller than that of the averages."""
        return float(np.nanmean(self.errors(self.naive)) - np.nanmean(self.errors(self.fitted)))

    def disordered(self) -> float:
        """Return the share of updates before which an average is greater than that of a larger k."""
        greatest = np.fmax.accumulate(self.naive, axis=1)
        return float(np.mean((self.naive < greatest).any(axis=1)))


def estimates(run: Record) -> Estimates | None:
    """Return the estimates of a run by Push & Wait, each of whose versions was evaluated; else None."""
    (options,) = run.spec.algorithms
    made, n = run.evaluations.time, run.spec.devices.workers
    every = np.array_equal(run.evaluations.iteration, np.arange(len(made)))
    if (
        not isinstance(options, DynamicOptions)
        or options.protocol != "push-and-wait"
        or not every
        or len(made) < 3
    ):
        return None
    return _before_updates(options, run.spec.compute, run.seed, n, tuple(made.tolist()))


@lru_cache(maxsize=32)  # tables, claims and figures ask for those of the same runs
def _before_updates(
    options: DynamicOptions, law: ComputeSpec, seed: int, n: int, made: tuple[float, ...]
) -> Estimates:
    """Return the estimates of a run of n workers, whose versions were made at these moments."""
    naive, fitted = (
        IterationTimes(n, options.untried, options.time_samples, one) for one in ("naive", "fitted")
    )
    arrivals = _arrivals(law, seed, n, np.array(made))
    came = np.zeros(len(made), np.int64)
    waited_for = [n]
    rows: list[tuple[Floats, Floats]] = []
    for version in range(1, len(made)):
        while arrivals and arrivals[-1][0] <= made[version] + _ROUNDED:
            at, base = arrivals.pop()
            came[base] += 1
            for one in (naive, fitted):
                one.add(waited_for[base], int(came[base]), at - float(made[base]))
        waited_for.append(int(came[version - 1]))
        averages, fit = naive.estimate(), fitted.estimate()
        assert averages is not None and fit is not None  # there are gradients of version 0
        rows.append((np.where(naive.tried, averages, np.nan), fit))
    # The last version has no update.
    return Estimates(
        np.array(waited_for[2:]), *(np.array(one[:-1]) for one in zip(*rows, strict=True))
    )


def _arrivals(law: ComputeSpec, seed: int, workers: int, made: Floats) -> list[tuple[float, int]]:
    """Return the moment and the version of every gradient that workers compute, the last one first."""
    durations = Durations.of(law.model_dump(), seed, "compute", workers)
    found = []
    for worker in range(workers):
        own, now, version = durations.of_device(worker), 0.0, 0
        while version < len(made):
            begins = max(now, float(made[version]))
            now = begins + own.sample(begins)
            found.append((now, version))
            version = max(version + 1, int(np.searchsorted(made, now, side="right")) - 1)
    return sorted(found, reverse=True)


@cache
def exact_times(n: int) -> Floats:
    """Return E[T_{k,k}] for k = 1 to n, in seconds, where a round trip is Exp(1).

    As in Appendix A: k workers begin, and each other one has first to end what it computes, for which
    it needs Exp(1) as well.
    """
    own, rest = np.random.default_rng(1).standard_exponential((2, _DRAWN, n))
    busy = np.arange(n) >= np.arange(1, n + 1)[:, None]
    return np.array(
        [np.partition(own + rest * one, k, axis=1)[:, k].mean() for k, one in enumerate(busy)]
    )


def _found(line: Line) -> dict[int, Estimates]:
    return {run.seed: found for run in line.runs if (found := estimates(run))}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The panel of k, of a line's first run."""

    name: str

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return k of each update; nothing without a run."""
        found = list(_found(lines[self.name]).values())[:1]
        series = tuple(
            Series("", np.arange(2.0, 2 + len(one.k)), one.k.astype(float), 0, "points")
            for one in found
        )
        panel = Panel(Axis("k", whole=True, low=0), series, nothing="" if found else "no run yet")
        return Plot(Axis(UPDATES.label, whole=True, low=0), (panel,))


@dataclass(frozen=True, slots=True)
class TimesByK:
    """The panel of one estimator's T̂(k) of each k, of a line's first run, and of E[T_{k,k}].

    Attributes:
        of: from the estimates to those of one estimator.
    """

    name: str
    title: str
    of: Callable[[Estimates], Floats]

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return a curve for each k, and in its colour a dotted line; nothing without a run."""
        series: list[Series] = []
        across: list[Across] = []
        high = None
        for one in list(_found(lines[self.name]).values())[:1]:
            values = self.of(one)
            updates = np.arange(2.0, 2 + len(values))
            exact = exact_times(values.shape[1])
            # The same in both panels: they are compared.
            high = 1.05 * float(np.nanmax([one.naive, one.fitted]))
            for place, (column, time) in enumerate(zip(values.T, exact, strict=True)):
                title = f"k = {place + 1}"
                series.append(Series(title, updates, column, places[title]))
                across.append(Across("y", float(time), places[title], dotted=True))
        y = Axis("T̂(k) (s)", low=0, high=high)
        panel = Panel(y, tuple(series), tuple(across), nothing="" if series else "no run yet")
        return Plot(Axis(UPDATES.label, whole=True, low=0), (panel,), self.title)


@dataclass(frozen=True, slots=True)
class Errors:
    """A table of each k: its updates, E[T_{k,k}], and the mean errors of both estimators."""

    name: str

    def markdown(self, lines: Lines) -> str:
        """Return the table; empty without a run."""
        found = list(_found(lines[self.name]).values())
        if not found:
            return ""
        exact = exact_times(found[0].naive.shape[1])
        rows = []
        for place, time in enumerate(exact):
            cells = [str(place + 1), f"{time:.2f}"]
            cells.append(
                as_deviation(Spread.of(float(np.sum(one.k == place + 1)) for one in found))
            )
            for several in ([one.naive for one in found], [one.fitted for one in found]):
                means = [
                    100 * _mean(one.errors(estimated)[:, place])
                    for one, estimated in zip(found, several, strict=True)
                ]
                cells.append(as_deviation(Spread.of(mean for mean in means if np.isfinite(mean))))
            rows.append(cells)
        return markdown(
            ("k", "E[T(k)], s", "updates", "error of the average, %", "error of (17), %"), rows
        )


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


@dataclass(frozen=True, slots=True)
class Compared:
    """A number of the estimates, one for each seed, is at least so large.

    Attributes:
        number: of the estimates of a run.
        form: the number's format.
    """

    name: str
    text: str
    number: Callable[[Estimates], float]
    least: float
    form: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the mean over the seeds."""
        found = {seed: self.number(one) for seed, one in _found(lines[self.name]).items()}
        if not found:
            return Verdict(self.text)
        told = ", ".join(format(one, self.form) for one in found.values())
        return decided(self.text, [Sample(found).between(self.least, unit="")], told)

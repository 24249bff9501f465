"""Curves: each is one line of a chart, for one run or for several that differ only in their seed.

Completed runs of one experiment and one label, whose resolved specs are equal but for the seed, are
one curve: the mean of what they measured with the band from the lowest to the highest. A run that did
not complete is a curve of its own: it would cut the mean short where it stopped. A second run of a
seed differs from the first in something other than the seed; it forms a curve with the second runs of
the other seeds.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.number_text import Measure
from testbed.results.reading.distinct_names import names_of_groups
from testbed.results.reading.quality import ACCURACY, LOSS, Quality
from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_endings import is_complete

Floats: TypeAlias = npt.NDArray[np.float64]
MEASURES: tuple[Measure, ...] = ("payload", "message", "wire")
_COUNTED = ("time", "joules", *(f"{measure}_bytes" for measure in MEASURES))


@dataclass(frozen=True, slots=True)
class Mean:
    """A curve's points, all of shape (points,); for a single run, its evaluations.

    Attributes:
        iteration: int64, updates applied.
        value: float64, of the curve's quality; mean over the runs. NaN where a single run's is not
            known.
        low, high: float64, the least and the greatest value among the runs.
        time: float64, seconds since training started; mean.
        joules: float64, energy of the devices so far; mean, NaN where it is not known.
        payload_bytes, message_bytes, wire_bytes: float64, ingress so far; mean.
    """

    iteration: npt.NDArray[np.int64]
    value: Floats
    low: Floats
    high: Floats
    time: Floats
    joules: Floats
    payload_bytes: Floats
    message_bytes: Floats
    wire_bytes: Floats

    def __len__(self) -> int:
        return len(self.iteration)


@dataclass(frozen=True)
class Curve:
    """One run, or several that differ only in their seed. Made by ``curves_of``.

    Attributes:
        name: distinguishes it from the other curves, e.g. ``adacomp-0.01``.
        runs: at least one, in the order in which they were given.
        quality: what it shows.
    """

    name: str
    runs: tuple[RecordedRun, ...]
    quality: Quality

    @property
    def of_programs(self) -> bool:
        """True if programs of users made its runs: they told of rounds, and there are no updates."""
        return all(run.manifest.programs for run in self.runs)

    @property
    def has_energy(self) -> bool:
        """True if the energy at any of its points is known."""
        return bool(np.isfinite(self.mean.joules).any())

    @property
    def label(self) -> str:
        """The algorithm's label, the same for all its runs."""
        return self.runs[0].algorithm

    @property
    def title(self) -> str:
        """The name, with the number of seeds, and how runs ended that are not ``completed``."""
        if len(self.runs) > 1:
            ends = Counter(run.ended for run in self.runs if run.ended != "completed")
            words = [f"{len(self.runs)} seeds", *(f"{n} {ended}" for ended, n in ends.items())]
            return f"{self.name} ({', '.join(words)})"
        ended = self.runs[0].ended
        return self.name if ended == "completed" else f"{self.name} ({ended})"

    @cached_property
    def mean(self) -> Mean:
        """The mean over the runs at each iteration at which any of them was evaluated.

        Values, ingress bytes (the mean curve's x is the mean of the bytes that each run had
        received by that iteration) and times are averaged at the same iteration. For a run that was
        not evaluated at an iteration, they are interpolated between its neighbouring evaluations.
        Nothing is extrapolated: the curve begins where the last run begins to have finite
        values, and ends where the first ceases to. A single run is left as it is, with its gaps.

        Raises:
            NoRunError: a journal has another format.
        """
        if len(self.runs) == 1:
            curve = self.runs[0].evaluations
            counted = {name: getattr(curve, name).astype(np.float64) for name in _COUNTED}
            value = curve.of(self.quality)
            return Mean(curve.iteration, value, value, value, **counted)
        known = []
        for curve in (run.evaluations for run in self.runs):
            value = curve.of(self.quality)
            finite = np.isfinite(value)
            columns = {name: getattr(curve, name)[finite] for name in _COUNTED}
            columns["value"] = value[finite]
            known.append((curve.iteration[finite], columns))
        grid = _common_grid([iteration for iteration, _ in known])

        def at_grid(name: str) -> Floats:
            empty = not len(grid)  # and then a run may have nothing to interpolate
            rows = [grid if empty else np.interp(grid, x, columns[name]) for x, columns in known]
            return np.asarray(rows, dtype=np.float64)

        values = at_grid("value")
        means = {name: at_grid(name).mean(axis=0) for name in _COUNTED}
        mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
        return Mean(grid, mean, low, high, **means)


def curves_of(runs: Sequence[RecordedRun]) -> tuple[Curve, ...]:
    """Return the curves of some runs, in the order of each curve's first run."""
    groups: dict[Hashable, list[RecordedRun]] = defaultdict(list)
    earlier: dict[Hashable, int] = defaultdict(int)
    for run in runs:
        key: Hashable = _all_but_seed(run)
        if key is None or not is_complete(run.ended):
            key = run.directory
        same_seed = (key, run.manifest.seed)
        groups[(key, earlier[same_seed])].append(run)
        earlier[same_seed] += 1
    names = names_of_groups(list(groups.values()))
    quality = quality_of(runs)
    return tuple(
        Curve(name, tuple(group), quality)
        for name, group in zip(names, groups.values(), strict=True)
    )


def quality_of(runs: Sequence[RecordedRun]) -> Quality:
    """Return the quality by which runs are compared.

    It is that of each of them, if it is the same; otherwise the accuracy, or the loss if not all have
    an accuracy. Runs without an evaluation have no say beside others.
    """
    evaluated = [run for run in runs if len(run.evaluations)] or runs
    own = {run.quality for run in evaluated}
    if len(own) == 1:
        return own.pop()
    classes = all(np.isfinite(run.evaluations.accuracy).any() for run in evaluated)
    return ACCURACY if classes or not own else LOSS


def _all_but_seed(run: RecordedRun) -> tuple[str, str, str] | None:
    """Return what the runs of one curve have in common; None if the run's spec cannot be read."""
    spec = run.spec
    if not isinstance(spec, dict):
        return None
    rest = {key: value for key, value in spec.items() if key != "seed"}
    # Measuring the links before training does not change it, nor does the number of processors.
    for section, without in (("network", "probe"), ("simulation", "processors")):
        if isinstance(rest.get(section), dict):
            rest[section] = {key: one for key, one in rest[section].items() if key != without}
    return run.manifest.experiment, run.algorithm, json.dumps(rest, sort_keys=True, default=str)


def _common_grid(iterations: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return every iteration that lies within the range of all arrays (each in order)."""
    grid = np.unique(np.concatenate(iterations))
    if not all(len(iteration) for iteration in iterations):
        return grid[:0]
    first = max(iteration[0] for iteration in iterations)
    last = min(iteration[-1] for iteration in iterations)
    within: npt.NDArray[np.int64] = grid[(first <= grid) & (grid <= last)]
    return within

"""Faults in charts: a strip below a plot, with a row of ticks and bars for each curve with faults.

A tick is the beginning of a fault, or of several that no figure can separate; a bar is its duration,
if there are few. The colour is that of the kind, the line through a row is the curve's own. If many
workers crash, a panel shows how many are alive. A line across the plot is a server's death.

A fault has an iteration and times; the bytes that had come in by then are read off the curve, so that
a mark is under the point of the curve at which the fault began.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from testbed import number_text as q
from testbed.device_names import SERVER_NAME, is_server
from testbed.results.figures.chart import Across, Axis, Panel, Series
from testbed.results.reading.curves import MEASURES, Curve, Floats, Mean
from testbed.results.reading.recorded_faults import FaultOccurrence, RunTime, in_order, went_down
from testbed.results.reading.recorded_faults import alive as alive_in

KIND_COLOURS: Mapping[str, str] = {
    "freeze": "#3A9AD9",
    "kill": "#DC3545",
    "stop-network": "#E69F00",
    "partition": "#CC79A7",
    "slow": "#8C8C8C",
    "corrupt": "#009E73",
}
OTHER_COLOUR = "#8C8C8C"
FEW = 5
"""Maximum number of crashed workers that only marks show; above it, a curve shows the number alive."""
_SPANS = 30
"""Maximum number of marks of one kind on a curve that are drawn with their durations."""
_BINS = 400
"""Maximum number of a curve's faults with a mark each; above it, those of a kind share this many."""
_NAMED = 4
"""Maximum number of devices that a mark names; above it, the mark gives their number."""
_LINES = 4
"""Maximum number of server kills that are lines across the plot; above it, none is drawn there."""
_ROW, _ALIVE = 0.13, 0.5
"""Heights of a row of the strip and of the panel of workers, inches."""
Placed: TypeAlias = Sequence[tuple[int, Curve]]
"""Curves, each with its place among all of the chart."""


@dataclass(frozen=True, slots=True)
class FaultMark:
    """One fault, or several of one kind close to each other.

    Attributes:
        kind: of the fault.
        server: True if it struck the server.
        at: its place: ``iteration``, ``time``, ``joules``, ``payload``, ``message``, ``wire``.
        until: the place of its end, likewise; None if it has no end, or the end is not shown.
        text: the fault, its devices and its time in words.
    """

    kind: str
    server: bool
    at: Mapping[str, float]
    until: Mapping[str, float] | None
    text: str


def marks(curve: Curve) -> tuple[FaultMark, ...]:
    """Return the marks of a curve's runs, in the order of iterations."""
    events: list[tuple[str, list[FaultOccurrence]]] = []
    for run in curve.runs:
        seed = f" (seed {run.manifest.seed})" if len(curve.runs) > 1 else ""
        together: dict[tuple[str, int, RunTime], list[FaultOccurrence]] = defaultdict(list)
        for occurrence in run.faults:
            together[occurrence.kind, occurrence.rule, occurrence.began].append(occurrence)
        events += [(seed, occurrences) for occurrences in together.values()]
    position = _Positions(curve)
    if len(events) > _BINS:
        return _merged(
            [occurrence for _, occurrences in events for occurrence in occurrences], position
        )
    count = Counter(occurrences[0].kind for _, occurrences in events)
    found = [
        _mark(occurrences, seed, position, spans=count[occurrences[0].kind] <= _SPANS)
        for seed, occurrences in events
    ]
    return tuple(sorted(found, key=lambda mark: mark.at["iteration"]))


class _Positions:
    """Converts moments into places on the axes."""

    def __init__(self, curve: Curve) -> None:
        mean = curve.mean
        # Programs of users have no updates at which a fault could be said to strike.
        self._by_time = curve.of_programs
        self._known = mean.time if self._by_time else mean.iteration
        self._sums = _sums(mean)

    def __call__(self, moment: RunTime) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, sums in self._sums.items():
            at = moment.time if self._by_time else moment.iteration
            found[name] = float(np.interp(at, self._known, sums)) if len(self._known) else 0
        return found | {"iteration": moment.iteration, "time": moment.time}


def _sums(mean: Mean) -> dict[str, Floats]:
    """Return what had come together at a curve's points: seconds, bytes of each kind, and joules."""
    sums = {"time": mean.time, "joules": mean.joules}
    return sums | {one: getattr(mean, f"{one}_bytes") for one in MEASURES}


def _mark(
    occurrences: Sequence[FaultOccurrence], seed: str, position: _Positions, *, spans: bool
) -> FaultMark:
    first = occurrences[0]
    ends = {occurrence.ended for occurrence in occurrences}
    ended = ends.pop() if spans and len(ends) == 1 else None
    devices = _devices_in_words(occurrences)
    text = f"{first.kind} of {devices}{seed} at iteration {first.began.iteration:,}"
    text += f", {q.as_duration(first.began.time)}"
    if ended is not None:
        text += f", for {q.as_duration(ended.time - first.began.time)}"
    server = any(is_server(occurrence.device) for occurrence in occurrences)
    until = None if ended is None else position(ended)
    return FaultMark(first.kind, server, position(first.began), until, text)


def _merged(occurrences: Sequence[FaultOccurrence], position: _Positions) -> tuple[FaultMark, ...]:
    """Return one mark for all faults of a kind in the same bin of iterations, the server's apart."""
    last = max(occurrence.began.iteration for occurrence in occurrences)
    width = max(1, -(-(last + 1) // _BINS))
    bins: dict[tuple[int, str, bool], list[FaultOccurrence]] = defaultdict(list)
    for occurrence in occurrences:
        bins[
            occurrence.began.iteration // width, occurrence.kind, is_server(occurrence.device)
        ].append(occurrence)
    found = []
    for (_, kind, server), together in sorted(bins.items()):
        together.sort(key=lambda occurrence: occurrence.began.iteration)
        first, final = together[0].began, together[-1].began
        span = f"{first.iteration:,}"
        span += f" to {final.iteration:,}" if final.iteration > first.iteration else ""
        text = f"{kind} of {_devices_in_words(together)} at iteration {span}"
        found.append(FaultMark(kind, server, position(first), None, text))
    return tuple(found)


def _devices_in_words(occurrences: Sequence[FaultOccurrence]) -> str:
    devices = list(dict.fromkeys(occurrence.device for occurrence in occurrences))
    if len(devices) <= _NAMED:
        return ", ".join("the server" if device == SERVER_NAME else device for device in devices)
    return f"{len(devices)} devices"


@dataclass(frozen=True, slots=True)
class Living:
    """The mean number of workers alive in a curve's runs, a step at each place on the axis."""

    at: Floats
    workers: Floats


def living(curve: Curve, against: str) -> Living | None:
    """Return the number of workers alive along a curve; None without crashes or evaluations."""
    counted = [alive_in(run.faults, run.manifest.workers) for run in curve.runs]
    mean = curve.mean
    if not len(mean) or all(len(n) == 1 for *_, n in counted):
        return None
    by_time = against == "time" or (curve.of_programs and against != "iteration")
    known = mean.time if by_time else mean.iteration
    moments = [times if by_time else iterations for iterations, times, _ in counted]
    grid = np.unique(np.concatenate([*moments, known[-1:]]).astype(np.float64))
    each = [
        n[np.searchsorted(own, grid, "right") - 1]
        for own, (*_, n) in zip(moments, counted, strict=True)
    ]
    if against not in ("iteration", "time"):
        return Living(np.interp(grid, known, _sums(mean)[against]), np.mean(each, axis=0))
    return Living(grid, np.mean(each, axis=0))


def strip(curves: Placed, against: str, start: float = -np.inf) -> tuple[Panel, ...]:
    """Return the panel of the faults of some curves; none without a fault to show.

    Args:
        against: the quantity of x: ``iteration``, ``time``, ``joules``, or a kind of bytes.
        start: marks before it are left out.
    """
    rows = [(i, curve) for i, curve in curves if any(run.faults for run in curve.runs)]
    found = [
        (row, mark) for row, (_, curve) in enumerate(rows) for mark in _shown(curve, against, start)
    ]
    if not found:
        return ()
    spans: list[Series] = []
    ticks: list[Series] = []
    for kind in in_order({mark.kind for _, mark in found}):
        own = [(row, mark) for row, mark in found if mark.kind == kind]
        colour = KIND_COLOURS.get(kind, OTHER_COLOUR)
        at = np.array([mark.at[against] for _, mark in own])
        of_row = np.array([float(row) for row, _ in own])
        ticks.append(
            Series(kind, at, of_row, colour, "ticks", texts=tuple(mark.text for _, mark in own))
        )
        ends = [(row, mark.at, mark.until) for row, mark in own if mark.until is not None]
        x = [place for _, at, until in ends for place in (at[against], until[against], np.nan)]
        y = np.repeat([float(row) for row, *_ in ends], 3)
        spans += [Series("", np.array(x), y, colour, "spans")] * bool(ends)
    lines = tuple(Across("y", row, i) for row, (i, _) in enumerate(rows))
    names = Axis("faults", low=len(rows) - 0.4, high=-0.6, ticks={})
    return (Panel(names, (*spans, *ticks), lines, height=0.05 + _ROW * len(rows)),)


def alive(curves: Placed, against: str, start: float = -np.inf) -> tuple[Panel, ...]:
    """Return the panel of the workers alive along some curves; none if marks suffice for those down."""
    if not any(went_down(run.faults) > FEW for _, curve in curves for run in curve.runs):
        return ()
    steps = []
    for i, curve in curves:
        if (found := living(curve, against)) is not None:
            # The last number before the start holds there.
            x = np.maximum(found.at, start)
            kept = np.append(x[1:] > start, True)
            steps.append(Series(curve.title, x[kept], found.workers[kept], i, "steps"))
    return (Panel(Axis("workers\nalive", low=0), tuple(steps), height=_ALIVE),) * bool(steps)


def kills(curves: Sequence[Curve], against: str, start: float = -np.inf) -> tuple[Across, ...]:
    """Return a line for each time that a server was killed; none if there are too many."""
    found = [
        Across("x", mark.at[against], i, dotted=True, words="server killed")
        for i, curve in enumerate(curves)
        for mark in _shown(curve, against, start)
        if mark.server
    ]
    return tuple(found) if len(found) <= _LINES else ()


def _shown(curve: Curve, against: str, start: float) -> list[FaultMark]:
    """Return the marks that have a place: without an evaluation, the ingress by then is unknown."""
    least = 0 if against in MEASURES else -np.inf
    return [m for m in marks(curve) if m.at[against] > least and m.at[against] >= start]

"""The rates in ``testbed plan`` that follow traces, of each class and direction."""

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.experiment.device_links import AskedLink
from testbed.experiment.rate_trace_files import DIRECTIONS, Direction
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.number_text import as_number, as_rate
from testbed.rate_trace import RateTrace

if TYPE_CHECKING:
    from testbed.planning.plan import Plan

_BLOCKS = "▁▂▃▄▅▆▇█"
_COLUMNS = 60


def describe(plan: "Plan") -> list[str]:
    """Return a heading and two lines for each trace; no lines without traces."""
    sections = plan.spec.devices.classes or (None,)
    lines = [
        line
        for section in sections
        for direction in DIRECTIONS
        if (trace := _trace(plan.spec.link_of(section), direction))
        for line in _lines(plan, section, direction, trace)
    ]
    return ["rates that follow traces:", *lines] if lines else []


def _trace(link: AskedLink, direction: Direction) -> RateTrace | None:
    return link.up_trace if direction == "uplink" else link.down_trace


def _lines(
    plan: "Plan", section: DeviceClassSpec | None, direction: Direction, trace: RateTrace
) -> list[str]:
    network = plan.spec.network
    own = section.trace if section and section.trace else network.trace
    if own is None or own.trace(direction) is None:
        own = network.trace
    path = None if own is None else own.file or getattr(own, direction)
    of = f" ({section.name})" if section else ""
    again = "the last for good"
    if trace.period is not None:
        again = f"mean {as_rate(trace.mean)}, again after {trace.period:g} s"
    spread = ", devices spread over it" if trace.spread else ""
    lowest = "nothing" if min(trace.rates) == 0 else as_rate(min(trace.rates))
    shape, until = _shape(trace)
    return [
        f"  {direction}{of}: {Path(path).name if path else 'as given'}, "
        f"{as_number(len(trace.rates), 'rate')} from {lowest} to {as_rate(max(trace.rates))}, "
        f"{again}{spread}",
        f"    0 |{shape}| {until:g} s",
    ]


def _shape(trace: RateTrace) -> tuple[str, float]:
    """Return the rates as a line of blocks, blank where nothing passes, and the time at its end."""
    until = trace.period or 1.25 * trace.times[-1] or 1.0
    blocks = ""
    for column in range(_COLUMNS):
        mean = _mean(trace, column * until / _COLUMNS, (column + 1) * until / _COLUMNS)
        height = mean / max(trace.rates)
        # The highest block is the highest rate; a rounding must not make a block higher.
        blocks += _BLOCKS[max(0, int(height * len(_BLOCKS) - 1e-6))] if mean else " "
    return blocks, until


def _mean(trace: RateTrace, begin: float, end: float) -> float:
    step, at, bits = trace.step_at(begin), begin, 0.0
    while at < end:
        until = min(end, trace.begin(step + 1))
        bits += trace.rate(step) * max(0.0, until - at)
        at, step = until, step + 1
    return bits / (end - begin)

"""The faults in ``testbed plan``: each rule's devices, effect, times and expected strikes."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from testbed.device_names import SERVER_NAME, struck_name
from testbed.faults.rules import (
    EachPush,
    FaultRule,
    FaultTrace,
    Intervals,
    Moment,
    TracedFault,
    Version,
)
from testbed.number_text import as_number
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan
from testbed.units import format_percentage, format_rate

_OPTIONS: dict[str, Callable[[Any], str]] = {
    "factor": lambda value: f"{value:g}",
    "uplink": format_rate,
    "downlink": format_rate,
    "cpus": lambda value: f"{value:g}",
    "share": format_percentage,
}
"""The options that a fault may have, each with its formatter."""


class _Struck(NamedTuple):
    """The run that faults strike.

    Attributes:
        updates: the last update of training; None for programs, which have none.
    """

    workers: int
    servers: int
    updates: int | None


def describe(plan: AnyPlan) -> list[str]:
    """Return a heading and a line for each rule; no lines without rules."""
    if isinstance(plan, Plan):
        settings = plan.settings
        of = _Struck(settings.workers, settings.servers, settings.training.updates)
        of_all = settings.faults.rules
    else:
        of, of_all = _Struck(plan.spec.devices.workers, servers=1, updates=None), plan.rules
    rules = [one for one in of_all if not one.fault.away]
    lines = [f"  {i}. {_rule(rule, of)}" for i, rule in enumerate(rules)]
    return [f"faults: {as_number(len(rules), 'rule')}", *lines] if lines else []


def _rule(rule: FaultRule, of: _Struck) -> str:
    fault, devices = rule.fault, rule.devices
    if isinstance(rule.when, FaultTrace):
        return _of_trace(rule.when.rows, of)
    if devices and not 0 <= devices[0] < of.workers:
        names = [struck_name(device, of.servers, of.workers) for device in devices]
        target = ", ".join("the server" if name == SERVER_NAME else name for name in names)
    elif len(devices) == of.workers:
        target = "each worker"
    else:
        target = f"{len(devices)} of {of.workers} workers"
    options = [f"{key} {_OPTIONS[key](value)}" for key, value in fault.options.items()]
    how = " ".join([fault.kind, *options])
    lasting = "for good" if fault.duration is None else f"for {fault.duration:g} s"
    return f"{target}: {how}, {_when(rule)}, {lasting}{_expected(rule, of)}{_never(rule, of)}"


def _of_trace(rows: Sequence[TracedFault], of: _Struck) -> str:
    count = len({row.device for row in rows})
    kinds = Counter(row.fault.kind for row in rows)
    durations = {row.fault.duration for row in rows}
    known = sorted(duration for duration in durations if duration is not None)
    lasting = [f"for {known[0]:g} to {known[-1]:g} s"] if len(known) > 1 else []
    lasting += [f"for {known[0]:g} s"] if len(known) == 1 else []
    lasting += ["for good"] if None in durations else []
    how = ", ".join(f"{kind} {as_number(times, 'time')}" for kind, times in kinds.items())
    late = sum(row.iteration is not None and _is_late(row.iteration, of) for row in rows)
    never = f"; {late} never: training ends with update {of.updates:,}" if late else ""
    return f"{count} of {of.workers} workers: from a trace, {how}, {' or '.join(lasting)}{never}"


def _when(rule: FaultRule) -> str:
    match rule.when:
        case EachPush(probability):
            return f"after a push with probability {probability:g}"
        case Moment(time):
            return f"at {time:g} s"
        case Version(iteration):
            return f"at iteration {iteration:,}"
        case Intervals(mean_time):
            return f"every {mean_time:g} s on average, exponential"
    raise AssertionError(rule)


def _never(rule: FaultRule, of: _Struck) -> str:
    """Return why a rule at an iteration never strikes, as text; empty for others."""
    late = isinstance(rule.when, Version) and _is_late(rule.when.iteration, of)
    return f"; never: training ends with update {of.updates:,}" if late else ""


def _is_late(iteration: int, of: _Struck) -> bool:
    """Return True if training is over when faults of an iteration would strike."""
    return of.updates is not None and iteration >= of.updates


def _expected(rule: FaultRule, of: _Struck) -> str:
    """Return the expected number of strikes of a rule with a probability, as text; empty for others."""
    if not isinstance(rule.when, EachPush) or of.updates is None:
        return ""
    count = len(rule.devices)
    strikes = rule.when.probability * of.updates * count / of.workers
    if rule.fault.duration is not None:
        return f"; about {strikes:,.0f} times by the end"
    if strikes >= count:
        return f"; all {count} before the end"
    return f"; about {strikes:,.0f} of {count} by the end"

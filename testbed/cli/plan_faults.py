"""The faults in ``testbed plan``: each rule's devices, effect, times and expected strikes."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.device_names import SERVER_NAME, SERVER_NUMBER, struck_name
from testbed.experiment.units import format_percentage, format_rate
from testbed.quantities import as_number

if TYPE_CHECKING:
    from testbed.planning.plan import Plan

_OPTIONS: dict[str, Callable[[Any], str]] = {
    "factor": lambda value: f"{value:g}",
    "uplink": format_rate,
    "downlink": format_rate,
    "cpus": lambda value: f"{value:g}",
    "share": format_percentage,
}
"""The options that a fault may have, each with its formatter."""


def describe(plan: "Plan") -> list[str]:
    """Return a heading and a line for each rule; no lines without rules."""
    rules = [one for one in plan.settings.faults.rules if not one["fault"].get("away")]
    lines = [f"  {i}. {_rule(rule, plan)}" for i, rule in enumerate(rules)]
    return [f"faults: {as_number(len(rules), 'rule')}", *lines] if lines else []


def _rule(rule: Mapping[str, Any], plan: "Plan") -> str:
    fault, devices = rule["fault"], rule["devices"]
    if "trace" in rule:
        return _of_trace(rule, plan)
    if devices and devices[0] <= SERVER_NUMBER:
        names = [struck_name(device, plan.settings.servers) for device in devices]
        target = ", ".join("the server" if name == SERVER_NAME else name for name in names)
    elif len(devices) == plan.settings.workers:
        target = "each worker"
    else:
        target = f"{len(devices)} of {plan.settings.workers} workers"
    options = [f"{key} {_OPTIONS[key](fault[key])}" for key in _OPTIONS if key in fault]
    how = " ".join([fault["kind"], *options])
    lasting = "for good" if fault["duration"] is None else f"for {fault['duration']:g} s"
    return f"{target}: {how}, {_when(rule)}, {lasting}{_expected(rule, plan)}{_never(rule, plan)}"


def _of_trace(rule: Mapping[str, Any], plan: "Plan") -> str:
    """Return the text of a trace: its devices, kinds of fault and durations."""
    rows = rule["trace"]
    count = len({device for _, _, device, _ in rows})
    kinds = Counter(fault["kind"] for *_, fault in rows)
    durations = {fault["duration"] for *_, fault in rows}
    known = sorted(duration for duration in durations if duration is not None)
    lasting = [f"for {known[0]:g} to {known[-1]:g} s"] if len(known) > 1 else []
    lasting += [f"for {known[0]:g} s"] if len(known) == 1 else []
    lasting += ["for good"] if None in durations else []
    how = ", ".join(f"{kind} {as_number(times, 'time')}" for kind, times in kinds.items())
    updates = plan.settings.training.updates
    late = sum(iteration is not None and iteration > updates for _, iteration, _, _ in rows)
    never = f"; {late} never: training ends with update {updates:,}" if late else ""
    of = f"{count} of {plan.settings.workers} workers"
    return f"{of}: from a trace, {how}, {' or '.join(lasting)}{never}"


def _when(rule: Mapping[str, Any]) -> str:
    if "probability" in rule:
        return f"after a push with probability {rule['probability']:g}"
    if "time" in rule:
        return f"at {rule['time']:g} s"
    if "iteration" in rule:
        return f"at iteration {rule['iteration']:,}"
    return f"every {rule['mean_time']:g} s on average, exponential"


def _never(rule: Mapping[str, Any], plan: "Plan") -> str:
    """Return why a rule at an iteration never strikes, as text; empty for others."""
    updates = plan.settings.training.updates
    late = rule.get("iteration", 0) > updates
    return f"; never: training ends with update {updates:,}" if late else ""


def _expected(rule: Mapping[str, Any], plan: "Plan") -> str:
    """Return the expected number of strikes of a rule with a probability, as text; empty for others."""
    if "probability" not in rule:
        return ""
    settings, count = plan.settings, len(rule["devices"])
    strikes = rule["probability"] * settings.training.updates * count / settings.workers
    if rule["fault"]["duration"] is not None:
        return f"; about {strikes:,.0f} times by the end"
    if strikes >= count:
        return f"; all {count} before the end"
    return f"; about {strikes:,.0f} of {count} by the end"

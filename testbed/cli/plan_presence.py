"""The devices in ``testbed plan`` that arrive and leave: who, and when."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from testbed.device_names import worker_name
from testbed.experiment.model_conflicts import layout_of
from testbed.faults.fault import Fault
from testbed.faults.presence import absences
from testbed.faults.rules import FaultRule, FaultTrace, Laws

if TYPE_CHECKING:
    from testbed.planning.plan import Plan

_FEW = 8
"""The most devices that are named."""


def describe(plan: "Plan") -> list[str]:
    """Return a heading, and lines about the first arrival and departure of each device that has one."""
    firsts: dict[str, dict[int, float]] = {"arrive later": {}, "leave": {}}
    again = 0
    for rule in plan.settings.faults.rules:
        if not rule.fault.away:
            continue
        for device, found in _of_rule(rule, plan).items():
            for begin, absence in found:
                if absence.away == "not-arrived" and absence.duration is not None:
                    firsts["arrive later"][device] = absence.duration
                elif device not in firsts["leave"]:
                    firsts["leave"][device] = begin
                    again += absence.duration is not None
    if not any(firsts.values()):
        return []
    lines = [f"  {len(own)} {how}: {_who(own)}" for how, own in firsts.items() if own]
    if again:
        lines.append(f"  {again} of them come back, and may leave again")
    late = len(firsts["arrive later"])
    return [
        f"presence: {plan.settings.workers - late} workers are there from the beginning",
        *lines,
        *_why_no_update(plan),
    ]


def _why_no_update(plan: "Plan") -> list[str]:
    """Return a line if no worker is ever there for as long as its parameters take to come.

    Nothing is said where other links than the workers' own, or messages that leave a part out, decide.
    As messages may be encoded smaller, it is said only of workers that would need twice the time.
    """
    settings, total = plan.settings, layout_of(plan.spec).total
    shares = settings.aggregators or settings.network.route_of or settings.network.co_located
    if shares or settings.pulls == "changed" or settings.timing.clock == "wall":
        return []
    short: set[int] = set()
    for rule in settings.faults.rules:
        leaves = (rule.when.leaves if isinstance(rule.when, Laws) else None) or {}
        if leaves.get("distribution") == "constant":
            short |= {
                device
                for device in rule.devices
                if (rate := settings.device(device).downlink)
                and 32 * total / rate > 2 * leaves["mean"]
            }
    if len(short) < settings.workers:
        return []
    return ["  no update is possible: all leave before their links have brought the parameters"]


def _of_rule(rule: FaultRule, plan: "Plan") -> dict[int, list[tuple[float, Fault]]]:
    """Return the first two absences of each device of a rule."""
    found: dict[int, list[tuple[float, Fault]]] = {}
    each: list[Iterator[tuple[float, int, Fault]]]
    if isinstance(rule.when, FaultTrace):
        rows = rule.when.rows
        each = [iter((row.time or 0.0, row.device, row.fault) for row in rows)]
        limit = len(rows)
    else:
        each, limit = absences(rule, plan.settings.seed, plan.settings.workers), 2
    for own in each:
        for begin, device, absence in islice(own, limit):
            found.setdefault(device, []).append((begin, absence))
    return found


def _who(times: Mapping[int, float]) -> str:
    ordered = sorted(times.items(), key=lambda one: (one[1], one[0]))
    if len(ordered) > _FEW:
        (first, begin), (last, end) = ordered[0], ordered[-1]
        return f"from {worker_name(first)} at {begin:.4g} s to {worker_name(last)} at {end:.4g} s"
    return ", ".join(f"{worker_name(device)} at {time:.4g} s" for device, time in ordered)

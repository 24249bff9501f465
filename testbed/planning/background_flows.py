"""The background traffic of a run: the experiment file's flows between the run's own devices."""

from dataclasses import asdict

from testbed.clock.background import background
from testbed.clock.background_rates import always
from testbed.device_names import worker_name
from testbed.errors import SpecError
from testbed.experiment.load import AnySpec
from testbed.messages.planned_nodes import PlannedBackground
from testbed.network.background import BackgroundFlow
from testbed.rate_trace import RateTrace
from testbed.training.settings import Settings
from testbed.units import format_duration, format_rate

_SHOWN = 10
"""The most lines about flows."""
FILES_PER_FLOW = 2
"""Descriptors that a flow takes: a socket that sends, and one that counts."""


def check(settings: Settings) -> None:
    """Check that flows leave something of each device's link, where it is computed what they take.

    Raises:
        SpecError: flows that are on all the time want as much as the link has, or more.
    """
    found = background(settings)
    if found is None:
        return
    for (number, up), usual in found.links:
        if usual is None:
            continue
        most = max(usual.rates) if isinstance(usual, RateTrace) else usual
        wanted = always(found.on((number, up)))
        if wanted >= most:
            raise SpecError(
                f"traffic_between: flows without pauses take {format_rate(wanted)} of the "
                f"{'uplink' if up else 'downlink'} of {worker_name(number)}, which has "
                f"{format_rate(most)}, and messages would get nothing: lower their rates, or give the "
                "link a higher one"
            )


def for_agent(spec: AnySpec, flows: tuple[BackgroundFlow, ...]) -> PlannedBackground:
    """Return the flows for the agent, as a part of its view of the plan."""
    return {"seed": spec.seed, "flows": [asdict(flow) for flow in flows]}


def record(flows: tuple[BackgroundFlow, ...]) -> dict[str, object]:
    """Return the flows as JSON values for scripts; nothing without flows."""
    return {"background": [asdict(flow) for flow in flows]} if flows else {}


def describe(flows: tuple[BackgroundFlow, ...]) -> list[str]:
    """Return a line of ``testbed plan`` for each flow."""
    lines = []
    for flow in flows if len(flows) <= _SHOWN else flows[: _SHOWN - 1]:
        law = str(flow.law)
        if flow.on:
            law += f", on {format_duration(flow.on)} and off {format_duration(flow.off)} on average"
        lines.append(
            f"  background    {flow.sender} to {flow.receiver}, {format_rate(flow.rate)}, {law}"
        )
    left = len(flows) - len(lines)
    return lines + ([f"  background    and {left:,} flows more"] if left else [])

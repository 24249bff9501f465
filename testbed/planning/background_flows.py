"""The background traffic of a run: the experiment file's flows between the run's own devices."""

from collections.abc import Callable
from dataclasses import asdict

from testbed.experiment.load import AnySpec
from testbed.messages.planned_nodes import PlannedBackground
from testbed.network.background import BackgroundFlow
from testbed.units import format_duration, format_rate

_SHOWN = 10
"""The most lines about flows."""
FILES_PER_FLOW = 2
"""Descriptors that a flow takes: a socket that sends, and one that counts."""


def flows_of(
    spec: AnySpec, name: Callable[[str], str] = lambda device: device
) -> tuple[BackgroundFlow, ...]:
    """Return the flows of a run.

    Args:
        name: returns the run's name of a device that the file names.
    """
    return tuple(
        BackgroundFlow(name(one.from_), name(one.to), one.rate, one.size, one.law, **one.pauses)
        for one in spec.traffic_between
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

"""The flows of an experiment file's background traffic, as the network's modules take them."""

from collections.abc import Callable

from testbed.experiment.sections.traffic_between import FlowsSpec
from testbed.network.background import BackgroundFlow


def flows_of(
    flows: FlowsSpec, name: Callable[[str], str] = lambda device: device
) -> tuple[BackgroundFlow, ...]:
    """Return the flows of a run, in the order of its file.

    Args:
        name: returns the run's name of a device that the file names.
    """
    return tuple(
        BackgroundFlow(name(one.from_), name(one.to), one.rate, one.size, one.law, **one.pauses)
        for one in flows
    )

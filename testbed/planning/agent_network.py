"""The nodes, links and limits that the agent is to make, as JSON values, for both kinds of plans."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from testbed.experiment.sections.devices import DevicesSpec
from testbed.experiment.sections.network import TrafficSpec
from testbed.messages.planned_nodes import DataclassFields, PlannedDevice, PlannedTraffic
from testbed.network.links import Link


def limited(
    names: Sequence[str], numbers: Mapping[str, int], section: DevicesSpec, class_of: Sequence[int]
) -> list[PlannedDevice]:
    """Return the name of each node, and the limits of those of workers or peers.

    Args:
        numbers: the workers' or peers' numbers, by name.
        class_of: the class of each, by number; empty without classes.
    """
    found: list[PlannedDevice] = []
    for name in names:
        device: PlannedDevice = {"name": name}
        if name in numbers:
            own = section.classes[class_of[numbers[name]]] if class_of else None
            device["cpus"] = own.of("cpus", section.cpus) if own else section.cpus
            device["memory"] = own.of("memory", section.memory) if own else section.memory
        found.append(device)
    return found


def traffic(section: TrafficSpec, directory: Path) -> PlannedTraffic:
    """Return what is captured, and to which folder, and how often counters are sampled."""
    return {
        "capture": section.capture,
        "file_size": section.file_size,
        "total_size": section.total_size,
        "period": section.period,
        "directory": str(directory.absolute()),
    }


def plain(links: Sequence[Link]) -> list[DataclassFields]:
    """Return the fields of links."""
    return [asdict(link) for link in links]

"""The nodes, links and limits that the agent is to make, as JSON values, for both kinds of plans."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from testbed.experiment.sections.devices import DevicesSpec
from testbed.messages.planned_nodes import PlannedDevice, PlannedLinks
from testbed.planning import background_flows, probed_links
from testbed.planning.plans import AnyPlan


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


def links(plan: AnyPlan, directory: Path) -> PlannedLinks:
    """Return the links and routers to make, which are probed, and what is captured to a folder."""
    section = plan.spec.traffic
    found: PlannedLinks = {
        "traffic": {
            "capture": section.capture,
            "file_size": section.file_size,
            "total_size": section.total_size,
            "period": section.period,
            "directory": str(directory.absolute()),
        },
        "routers": plan.network.routers,
        "delays": plan.network.delays,
        "links": [asdict(link) for link in plan.links],
        "probe": [asdict(link) for link in probed_links.sample(plan)],
    }
    if plan.background and plan.spec.clock == "wall":
        found["background"] = background_flows.for_agent(plan.spec, plan.background)
    return found

"""The agent's view of a plan of programs: the nodes and links to make, as JSON values."""

import shlex
from pathlib import Path

from testbed.device_names import SERVER_NAME, worker_name
from testbed.experiment.program_conflicts import PLACEHOLDERS
from testbed.messages.planned_nodes import PlannedCounts, PlannedNetwork, PlannedNodes
from testbed.messages.requests import Load
from testbed.planning import agent_network
from testbed.planning.program_plan import ProgramPlan, filled, shown_paths
from testbed.programs.instance import Instance

_KEEPERS = {
    "namespaces": "testbed.nodes.keeper:load",
    "docker": "testbed.containers.program_containers:load",
}
"""What the fork server loads: the keeper, and nothing that takes time."""


def load(plan: ProgramPlan) -> Load:
    """Return what the fork server loads, and its arguments."""
    return {"entry": _KEEPERS[plan.spec.devices.runtime], "arguments": {}}


def chosen(plan: ProgramPlan, written: str) -> PlannedNodes:
    """Return the nodes' runtime and addresses, what they read, and for Docker the images.

    ``written`` is the folder with a folder for each device.
    """
    addresses = {device: plan.address(device) for device in plan.devices}
    common: PlannedNodes = {"runtime": plan.spec.devices.runtime, "addresses": addresses}
    if plan.spec.devices.runtime == "namespaces":
        return {**common, "read": sorted(set(shown_paths(plan.spec))), "written": written}
    return {
        **common,
        "launch": "beside",
        "image": plan.image,
        "images": plan.images,
        "read": list(plan.spec.reads),
    }


def network(plan: ProgramPlan, directory: Path) -> PlannedNetwork:
    """Return the network for the agent to build: what is counted, probed, and captured to a folder."""
    workers = {worker_name(i): i for i in range(plan.spec.devices.workers)}
    counts: PlannedCounts = {
        "devices": agent_network.limited(plan.devices, workers, plan.spec.devices, plan.class_of),
        "captured": [SERVER_NAME],
        "cut_from": [SERVER_NAME],
        "counted": [SERVER_NAME],
        "uncounted": [],
        "sockets": [SERVER_NAME],
        "sysctls": plan.sysctls,
        "shared": [],
        "timed": True,
        "measured": [],
    }
    return {**counts, **agent_network.links(plan, directory)}


def words(command: str, instance: Instance) -> list[str]:
    """Return a command of an instance, such as one that tries whether it is ready, as words."""
    values = {name: instance.environment[f"TESTBED_{name.upper()}"] for name in PLACEHOLDERS}
    return [filled(word, values) for word in shlex.split(command)]

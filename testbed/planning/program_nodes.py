"""The agent's view of a plan of programs: the nodes and links to make, as JSON values."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.device_names import SERVER_NAME
from testbed.experiment.program_conflicts import PLACEHOLDERS
from testbed.planning import background, probed_links
from testbed.planning.program_plan import ProgramPlan, filled, shown_paths
from testbed.programs.instance import Instance

LOAD: Mapping[str, Any] = {"entry": "testbed.nodes.keeper:load", "arguments": {}}
"""What the fork server loads: the keeper, and nothing that takes time."""


def chosen(plan: ProgramPlan, written: str) -> dict[str, Any]:
    """Return the nodes' runtime and addresses, and what they read and write.

    Args:
        written: the folder with a folder for each device.
    """
    addresses = {device: plan.address(device) for device in plan.devices}
    return {
        "runtime": plan.spec.devices.runtime,
        "addresses": addresses,
        "read": sorted(set(shown_paths(plan.spec))),
        "written": written,
    }


def network(plan: ProgramPlan, directory: Path) -> dict[str, Any]:
    """Return the network for the agent to build, with what is counted, captured and probed in it.

    Args:
        directory: the folder for the capture's files.
    """
    return {
        "devices": [{"name": device} for device in plan.devices],
        "captured": [SERVER_NAME],
        "cut_from": [SERVER_NAME],
        "counted": [SERVER_NAME],
        "uncounted": [],
        "sockets": [SERVER_NAME],
        "sysctls": plan.sysctls,
        "traffic": dict(plan.spec.traffic) | {"directory": str(directory.absolute())},
        "routers": plan.network.routers,
        "delays": plan.network.delays,
        "links": [link.to_json() for link in plan.links],
        "shared": [],
        "measured": [],
        "probe": [link.to_json() for link in probed_links.sample(plan)],
        **background.for_agent(plan.spec, plan.background),
    }


def words(command: str, instance: Instance) -> list[str]:
    """Return a command of an instance, such as one that tries whether it is ready, as words."""
    values = {name: instance.environment[f"TESTBED_{name.upper()}"] for name in PLACEHOLDERS}
    return [filled(word, values) for word in shlex.split(command)]

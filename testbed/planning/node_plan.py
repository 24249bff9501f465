"""The agent's view of a plan: the nodes and links to make, as JSON values."""

from itertools import chain
from pathlib import Path

from testbed.containers import image
from testbed.device_names import COORDINATOR_NAME, EVALUATOR_NAME, SERVER_NAME
from testbed.experiment.sections.timing import TraceSpec
from testbed.learning.data import catalogue
from testbed.messages.planned_nodes import (
    PlannedCounts,
    PlannedDevice,
    PlannedNetwork,
    PlannedNodes,
)
from testbed.network.sysctls import OF_ROLES
from testbed.planning import agent_network
from testbed.planning.plan import Plan

DATA = "/data"
"""Folder in a container where a known dataset is mounted."""
# A pool of threads would not survive the fork, and a device that computes on all cores would emulate a
# machine that does not exist.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Environment variables that make a process compute with one thread."""
ANEW_FROM = 500
"""Devices from which on the fork server is a new interpreter. With 300 workers of the MLP, fork server
and devices took 4.8 s of the processors until training began if it was forked and 4.9 s if not, with
500 5.4 and 5.2 s, with 1,000 14.7 and 10.6 s (``bench.scale``)."""
_ENVIRONMENT = ONE_THREAD | {
    # A worker fills few of the images' pages (see Contents.part), and a huge page would be 500 of them.
    "NUMPY_MADVISE_HUGEPAGE": "0",
}


def image_name(plan: Plan) -> str:
    """Return the name of the image of the run's containers."""
    return plan.spec.devices.image or image.default_image()


def chosen(plan: Plan) -> PlannedNodes:
    """Return the nodes' runtime and addresses, what they read, and for Docker image and environment."""
    devices = plan.spec.devices
    common: PlannedNodes = {"runtime": devices.runtime, "addresses": addresses(plan)}
    if devices.runtime == "namespaces":
        return {**common, "read": [str(path) for path, _ in files_read(plan)]}
    known, mounts = _mounts(plan)
    return {
        **common,
        "launch": devices.launched,
        "image": image_name(plan),
        "mounts": mounts,
        "environment": _ENVIRONMENT | ({"TESTBED_DATA": DATA} if known else {}),
    }


def addresses(plan: Plan) -> dict[str, str]:
    """Return the address of each device that has one, by all its names.

    An only server is ``server`` as well as ``server-0``; a co-located server has its machine's address.
    """
    found = {device: plan.network.link(device).address for device in plan.network.devices}
    servers = dict(enumerate(plan.servers))
    return found | {f"{SERVER_NAME}-{i}": plan.settings.address(i) for i in servers}


def devices(plan: Plan) -> list[PlannedDevice]:
    """Return the name of each node, and the limits of those of workers or peers."""
    names = list(plan.network.devices)
    # The coordinator is not in the network and has no link.
    names += [COORDINATOR_NAME] if plan.coordinated else []
    return agent_network.limited(names, plan.workers, plan.spec.devices, plan.settings.class_of)


def network(plan: Plan, directory: Path) -> PlannedNetwork:
    """Return the network for the agent to build: what is counted, probed, and captured to a folder."""
    counts: PlannedCounts = {
        "devices": devices(plan),
        "captured": plan.serving or (plan.observed,),
        "cut_from": plan.serving or tuple(plan.workers),
        "cut_between": {
            plan.serving[index]: [
                *(plan.names[caller] for caller in plan.settings.callers(index)),
                *(
                    plan.serving[one]
                    for one in plan.settings.called(plan.settings.as_worker(index))
                ),
            ]
            for index in range(len(plan.servers), len(plan.serving))
        },
        "counted": (*plan.counted, *plan.aggregators),
        "uncounted": [EVALUATOR_NAME],
        "local": plan.local,
        "above": {
            one: [plan.serving[index] for index in plan.settings.called(number)]
            for number, one in enumerate(plan.aggregators, plan.settings.workers)
        },
        "sysctls": plan.spec.network.tcp_settings(OF_ROLES),
        "shared": [
            {"link": index, "up": up, "pairs": pairs} for (index, up), pairs in plan.shared.items()
        ],
        "timed": plan.spec.clock == "wall",
        "measured": [*plan.workers, *plan.serving],
    }
    return {**counts, **agent_network.links(plan, directory)}


def files_read(plan: Plan) -> list[tuple[Path, str | None]]:
    """Return the files and folders that a run reads, each with the name of the dataset that it is.

    The name is None for a trace, a file of a partition, and a dataset that the experiment names by its
    path. Code and data that are installed with the testbed are not among them.
    """
    settings = plan.settings
    parts = chain.from_iterable(settings.times_of_kinds)
    files = dict.fromkeys(part.file for part in parts if isinstance(part, TraceSpec))
    found: list[tuple[Path, str | None]] = [(Path(file), None) for file in files]
    if (of_partition := getattr(plan.spec.partition, "file", None)) is not None:
        found.append((Path(of_partition), None))
    name = plan.spec.dataset.name
    if name in catalogue.names():
        if (folder := catalogue.place_of(name)) is not None:
            found.append((folder.absolute(), name))
    elif settings.dataset.is_function:
        found += [(path, None) for path in settings.dataset.paths]
    elif Path(name).is_absolute():
        found.append((Path(name), None))
    return found


def _mounts(plan: Plan) -> tuple[bool, dict[str, str]]:
    """Return whether the dataset is a known one, and each mounted host path with its place inside."""
    read = files_read(plan)
    mounts = {str(path): f"{DATA}/{name}" if name else str(path) for path, name in read}
    return any(name for _, name in read), mounts

"""The number of devices that this host has room for, and the resource that limits it.

The resources are memory, the descriptors that one process may have, processes, and addresses, of which
there are 32,768 links. The kernel's neighbour tables are no limit, because their entries are permanent
and not counted.
"""

import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from testbed.network.links import MOST_LINKS
from testbed.nodes import control_group

FILES_PER_DEVICE = 4
"""Descriptors per device in one process: in the agent its network, its counters, of some peers a file,
and before its start the channel for its reports; in the fork server its process and, under the virtual
clock, both ends of its channel to the clock."""
FILES_PER_STARTED_DEVICE = 6
"""The same for a container that starts its own role: the agent holds all of them, and a connection."""
FILES_PER_RUN = 64
PROCESSES_PER_DEVICE = 2
"""Processes and threads per device: a worker that listens while it computes has a second thread."""
PROCESSES_PER_RUN = 64
_MEMORY_FILES = {
    ("memory.max", "memory.current", "memory.stat"): "inactive_file",
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"): "total_inactive_file",
}
"""The files of a control group's memory, of v2 and v1: the limit, the use, and what counts its parts;
with the part that is files which can be forgotten."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A resource that limits the number of devices, in units of its own.

    Attributes:
        room: the amount that is available to a run.
        per_run: the amount that a run takes apart from its devices.
        per_device: the amount that each device takes.
        remedy: how to get more.
    """

    name: str
    room: float
    per_run: int
    per_device: float
    remedy: str

    @property
    def devices(self) -> int:
        """The number of devices that there is room for."""
        return max(0, int((self.room - self.per_run) // self.per_device))


def files() -> Limit:
    """Return the limit of descriptors of one process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = float("inf") if hard == resource.RLIM_INFINITY else hard
    remedy = "raise the hard limit (ulimit -Hn as root, or /etc/security/limits.conf)"
    return Limit("open files", room, FILES_PER_RUN, FILES_PER_DEVICE, remedy)


def processes() -> Limit:
    """Return the tightest limit of processes and threads: of kernel, user and control groups."""
    running = int(Path("/proc/loadavg").read_text("utf-8", "replace").split()[3].partition("/")[2])
    kernel = Path("/proc/sys/kernel")
    found = [
        (
            int((kernel / name).read_text("utf-8", "replace")) - running,
            f"raise it (sysctl kernel.{name})",
        )
        for name in ("pid_max", "threads-max")
    ]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY:
        own = sum(p.info["uids"].real == os.getuid() for p in psutil.process_iter(["uids"]))
        found.append((soft - own, "raise this user's limit (ulimit -u)"))
    found += [
        (int(most) - int(now), f"raise pids.max of the control group {path}")
        for path, (most, now) in _of_groups("pids", ("pids.max", "pids.current"))
        if most != "max"
    ]
    room, remedy = min(found)
    return Limit("processes", room, PROCESSES_PER_RUN, PROCESSES_PER_DEVICE, remedy)


def _of_groups(controller: str, files: Sequence[str]) -> Iterator[tuple[Path, list[str]]]:
    """Yield this process's control group, and each above it, with what files of it say."""
    for group in control_group.own_groups(controller):
        for path in (group.path, *group.path.parents):
            try:
                yield path, [(path / name).read_text().strip() for name in files]
            except OSError:  # the root of the hierarchy has no limit
                break


def memory(per_run: int, per_device: float) -> Limit:
    """Return the tightest limit of memory that is free or can be freed, in bytes."""
    fewer = "use fewer workers (devices.workers)"
    found: list[tuple[float, str]] = [(psutil.virtual_memory().available, fewer)]
    for files, cache in _MEMORY_FILES.items():
        for path, (most, now, counts) in _of_groups("memory", files):
            if most != "max":
                # Files that were not used for long are given up before anything is killed.
                freed = int(dict(line.split() for line in counts.splitlines()).get(cache, 0))
                left = max(0, int(most) - int(now) + freed)
                found.append((left, f"raise {files[0]} of the control group {path}, or {fewer}"))
    room, remedy = min(found)
    return Limit("memory", room, per_run, per_device, remedy)


def addresses() -> Limit:
    """Return the limit of links in the address plan."""
    return Limit("addresses", MOST_LINKS, 0, 1, "use fewer workers (devices.workers)")


def least(limits: Iterable[Limit]) -> Limit:
    """Return the resource that has room for the fewest devices."""
    return min(limits, key=lambda limit: limit.devices)

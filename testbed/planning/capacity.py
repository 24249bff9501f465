"""How many devices this host has room for, and which of its resources ends it.

Each resource is counted before anything is started: memory, the descriptors that one process may have,
processes. Nothing else is known to end it: addresses do at 32,768 links, and the kernel's neighbour
tables do not, because their entries are permanent and not counted.
"""

import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from testbed.network.addresses import MOST_LINKS
from testbed.nodes import control_group

FILES = 3
"""Descriptors of a device in one process: in the agent its network, its counters and its start; in the
fork server its process and, under the virtual clock, both ends of its channel to the clock."""
FILES_STARTED = 6
"""The same of a container that starts its own role: all of that is the agent's, and a connection."""
FILES_ONCE = 64
PROCESSES = 2
"""Processes and threads of a device: a worker that listens while it computes has a second thread."""
PROCESSES_ONCE = 64


@dataclass(frozen=True, slots=True)
class Limit:
    """One resource, in whatever it is counted in.

    Attributes:
        what: its name, for people.
        room: how much there is for a run.
        once: what a run takes whatever its devices.
        each: what each device takes.
        remedy: how to get more.
    """

    what: str
    room: float
    once: int
    each: int
    remedy: str

    @property
    def devices(self) -> int:
        """How many devices there is room for."""
        return max(0, int((self.room - self.once) // self.each))


def files(each: int = FILES) -> Limit:
    """Descriptors of one process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = float("inf") if hard == resource.RLIM_INFINITY else hard
    remedy = "raise the hard limit (ulimit -Hn as root, or /etc/security/limits.conf)"
    return Limit("open files", room, FILES_ONCE, each, remedy)


def processes() -> Limit:
    """Processes and threads: of the kernel, of this user, and of this process's control group."""
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    kernel = Path("/proc/sys/kernel")
    found = [
        (int((kernel / name).read_text()) - running, f"raise it (sysctl kernel.{name})")
        for name in ("pid_max", "threads-max")
    ]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY:
        own = sum(p.info["uids"].real == os.getuid() for p in psutil.process_iter(["uids"]))
        found.append((soft - own, "raise this user's limit (ulimit -u)"))
    found += [(left, f"raise pids.max of the control group {path}") for left, path in _of_groups()]
    room, remedy = min(found)
    return Limit("processes", room, PROCESSES_ONCE, PROCESSES, remedy)


def _of_groups() -> Iterable[tuple[int, Path]]:
    """The number of processes that this control group, and those above it, still allow."""
    for folder in control_group.with_controller("pids"):
        for path in (folder, *folder.parents):
            try:
                most, now = ((path / f"pids.{name}").read_text() for name in ("max", "current"))
            except OSError:  # the root of the hierarchy has no limit
                break
            if most.strip() != "max":
                yield int(most) - int(now), path


def memory(once: int, each: int) -> Limit:
    """Memory that is free, or could be."""
    room = psutil.virtual_memory().available
    return Limit("memory", room, once, each, "use fewer workers (devices.workers)")


def addresses() -> Limit:
    """Links that the address plan has."""
    return Limit("addresses", MOST_LINKS, 0, 1, "use fewer workers (devices.workers)")


def least(limits: Iterable[Limit]) -> Limit:
    """The resource that ends first."""
    return min(limits, key=lambda limit: limit.devices)

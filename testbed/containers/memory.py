"""Find out if the kernel killed a container's processes because they used more memory than they may.

A process that is killed so dies of SIGKILL like any other; only its control group counts it apart, and
the engine, which watches the group, tells it as an event.
"""

import contextlib
import time

import docker

from testbed.nodes import entering

_PATIENCE = 2
"""Seconds that the engine has to tell of a container whose control group is gone already."""
_COUNTS = ("memory.events", "memory.oom_control")
"""The file that has a line ``oom_kill n``, in cgroup v2 and v1."""


def kills(process: int) -> int:
    """How many processes of a container were killed for want of memory so far.

    Args:
        process: the container's first, as this process's /proc numbers it.

    Raises:
        OSError: the container is gone, or its control groups do not count it.
    """
    for members in entering.control_groups(process):
        for name in _COUNTS:
            path = members.with_name(name)
            if path.exists():
                words = path.read_text().split()
                if "oom_kill" in words:
                    return int(words[words.index("oom_kill") + 1])
    raise FileNotFoundError(f"no control group of process {process} counts oom_kill")


def engine_tells(api: docker.APIClient, container: str, since: float) -> bool:
    """Return True if the engine has seen a container come to the end of its memory.

    It may tell a moment after the container has ended, and is waited for.

    Args:
        since: seconds since the epoch, by which the container was not there yet.

    Raises:
        DockerException: the engine refuses.
        requests.RequestException: it is gone.
    """
    events = api.events(
        since=int(since),
        until=int(time.time()) + _PATIENCE,
        filters={"container": container, "event": "oom"},
        decode=True,
    )
    with contextlib.closing(events):
        return next(iter(events), None) is not None

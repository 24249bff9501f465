"""Find out if the kernel killed a container's processes for using more memory than they may.

Such a process dies of SIGKILL, like any other that is killed. Only its control group counts it
separately, and the engine, which watches the group, reports it as an event.
"""

import contextlib
import time

import docker

from testbed.nodes import joining_container

_PATIENCE = 2
"""Seconds that the engine has to report the kill once the container's control group is removed."""
_COUNTS = ("memory.events", "memory.oom_control")
"""The file that has a line ``oom_kill n``, in cgroup v2 and v1."""


def kills(process: int) -> int:
    """Return how many processes of a container the kernel has killed for lack of memory so far.

    Args:
        process: id of the container's first process in this process's /proc.

    Raises:
        OSError: the container has ended, or its control groups do not count such kills.
    """
    for members in joining_container.control_groups(process):
        for name in _COUNTS:
            path = members.with_name(name)
            if path.exists():
                words = path.read_text().split()
                if "oom_kill" in words:
                    return int(words[words.index("oom_kill") + 1])
    raise FileNotFoundError(f"no control group of process {process} counts oom_kill")


def engine_reports(api: docker.APIClient, container: str, since: float) -> bool:
    """Return True if the engine has seen a container run out of memory.

    The engine may report it a moment after the container has ended, so this waits for it.

    Args:
        since: seconds since the epoch, before the container was made.

    Raises:
        DockerException: the engine refuses.
        requests.RequestException: the engine does not answer.
    """
    events = api.events(
        since=int(since),
        until=int(time.time()) + _PATIENCE,
        filters={"container": container, "event": "oom"},
        decode=True,
    )
    with contextlib.closing(events):
        return next(iter(events), None) is not None

"""The processors and the memory of a running container: their limits and their use, by control groups.

An engine can limit processors, too, but cannot lift that: it takes "no limit" for "no change".
"""

import contextlib
from pathlib import Path

from testbed.errors import HostError
from testbed.nodes import control_group, joining_container

PERIOD = 100_000
"""Microseconds in which a container may use its share; the kernel's and the engines' default."""
_KILLS = ("memory.events", "memory.oom_control")
"""The file that has a line ``oom_kill n``, in cgroup v2 and v1."""


def limit_processors(process: int, cpus: float | None) -> None:
    """Limit the processors of a container from now on.

    Args:
        process: id of the container's first process in this process's /proc.
        cpus: number of processors, possibly a fraction; None for all.

    Raises:
        HostError: the container's control group cannot be written, or no longer exists.
    """
    quota = None if cpus is None else round(cpus * PERIOD)
    try:
        for members in joining_container.control_groups(process):
            if _set_quota(members.parent, quota):
                return
    except OSError as error:
        raise HostError(f"a container's processors cannot be limited: {error}") from error
    raise HostError(
        "a container's processors cannot be limited: its control group has no cpu controller on this "
        "host"
    )


def processor_seconds(process: int) -> float | None:
    """Return the processor time of a container so far, in seconds; None if its group does not count it.

    Args:
        process: id of the container's first process in this process's /proc.
    """
    try:
        groups = [members.parent for members in joining_container.control_groups(process)]
    except OSError:  # the container has ended
        return None
    for group in groups:
        with contextlib.suppress(OSError, KeyError):
            return control_group.processor_seconds(group)
    return None


def _set_quota(group: Path, quota: int | None) -> bool:
    """Write the quota of a group of cgroup v2 or v1; return False if it has none."""
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{'max' if quota is None else quota} {PERIOD}")
    elif (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(f"{PERIOD}")
        (group / "cpu.cfs_quota_us").write_text(f"{-1 if quota is None else quota}")
    else:
        return False
    return True


def memory_kills(process: int) -> int:
    """Return how many processes of a container the kernel has killed for lack of memory so far.

    Such a process dies of SIGKILL, like any other that is killed: only its group counts it apart.

    Args:
        process: id of the container's first process in this process's /proc.

    Raises:
        OSError: the container has ended, or its control groups do not count such kills.
    """
    for members in joining_container.control_groups(process):
        for name in _KILLS:
            path = members.with_name(name)
            if path.exists():
                words = path.read_text().split()
                if "oom_kill" in words:
                    return int(words[words.index("oom_kill") + 1])
    raise FileNotFoundError(f"no control group of process {process} counts oom_kill")

"""The processors of a running container, by its control group: its limit, and the time that it used.

An engine can set a limit, too, but cannot lift it: it takes "no limit" for "no change".
"""

import contextlib
from pathlib import Path

from testbed.errors import HostError
from testbed.nodes import joining_container
from testbed.nodes.control_group import processor_seconds

PERIOD = 100_000
"""Microseconds in which a container may use its share; the kernel's and the engines' default."""


def limit(process: int, cpus: float | None) -> None:
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


def seconds(process: int) -> float | None:
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
            return processor_seconds(group)
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

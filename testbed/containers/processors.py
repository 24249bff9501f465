"""Change how many processors a running container may use, by its control group.

An engine can set a limit, too, but cannot lift it: it takes "no limit" for "no change".
"""

from pathlib import Path

from testbed.errors import HostError
from testbed.nodes import entering

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
        for members in entering.control_groups(process):
            if _set_quota(members.parent, quota):
                return
    except OSError as error:
        raise HostError(f"a container's processors cannot be limited: {error}") from error
    raise HostError(
        "a container's processors cannot be limited: its control group has no cpu controller on this "
        "host"
    )


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

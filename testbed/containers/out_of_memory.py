"""Find out if the kernel killed a container's processes for using more memory than they may.

Such a process dies of SIGKILL, like any other that is killed. Only its control group counts it
separately.
"""

from testbed.nodes import joining_container

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

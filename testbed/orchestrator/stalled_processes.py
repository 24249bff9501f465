"""Find devices of a run that were stopped by a signal or frozen, by reading /proc."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from testbed.nodes import linux

_PROC = Path("/proc")
_FROZEN = ("refrigerator", "freezer_trap", "freezing")


def is_stalled(process: int) -> bool:
    """Return True if a process was stopped by a signal, or is in a control group that is frozen."""
    folder = _PROC / str(process)
    try:
        if linux.stat_of(process)[0] in ("T", "t"):
            return True
        # A frozen process looks asleep; only the kernel function that it waits in tells the difference.
        return any(name in (folder / "wchan").read_text("utf-8", "replace") for name in _FROZEN)
    except OSError:
        return False  # the process has ended, or is another user's


def processes_of_devices(agent: int, seen: Mapping[int, str]) -> dict[str, int]:
    """Find the processes of devices that were forked by an agent's fork server.

    Args:
        agent: the agent's process id.
        seen: the devices by their process ids as the fork server sees them, from inside a pid
            namespace of its own.

    Returns:
        The devices' process ids as this process sees them, as far as they can be read.
    """
    processes: dict[str, int] = {}
    for helper in _children(agent):
        for process in _children(helper):
            with contextlib.suppress(OSError, IndexError, KeyError):
                processes[seen[_one_level_up(process)]] = process
    return processes


def _children(process: int) -> list[int]:
    try:
        return [
            int(one)
            for one in (_PROC / f"{process}/task/{process}/children")
            .read_text("utf-8", "replace")
            .split()
        ]
    except OSError:  # the kernel has no such list, or the process has ended
        return []


def _one_level_up(process: int) -> int:
    """Return the id of a process in the parent of its pid namespace."""
    for line in (_PROC / f"{process}/status").read_text("utf-8", "replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-2])
    raise KeyError(process)

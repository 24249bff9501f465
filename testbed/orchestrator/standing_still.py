"""Devices of a run that stand still because they were stopped or frozen; read from /proc."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

_PROC = Path("/proc")
_FROZEN = ("refrigerator", "freezer_trap", "freezing")


def stands_still(process: int) -> bool:
    """Return True if a process was stopped by a signal, or is in a control group that is frozen."""
    folder = _PROC / str(process)
    try:
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        if state in ("T", "t"):
            return True
        # Frozen, it sleeps; only the kernel's function tells, to whoever may read it.
        return any(name in (folder / "wchan").read_text() for name in _FROZEN)
    except OSError:
        return False  # it has ended, or is another user's


def found(agent: int, seen: Mapping[int, str]) -> dict[str, int]:
    """Find the processes of devices that were forked by the fork server of an agent.

    Args:
        agent: its process id.
        seen: the devices by their process ids as the fork server sees them, from inside a pid
            namespace of its own.

    Returns:
        The devices' process ids as this process sees them, as far as the kernel tells.
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
            int(one) for one in (_PROC / f"{process}/task/{process}/children").read_text().split()
        ]
    except OSError:  # a kernel without that list, or it has ended
        return []


def _one_level_up(process: int) -> int:
    """The id of a process in the namespace around its own."""
    for line in (_PROC / f"{process}/status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-2])
    raise KeyError(process)

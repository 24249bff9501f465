"""Memory of a run's processes by role, read from /proc at a bounded cost; the agent owns it.

What belongs to a process alone is in ``smaps_rollup``, for which the kernel walks the process's page
tables: a millisecond and more for one that has torch. A sample therefore takes as long as it is
allowed to and goes on with the next process the next time; what was read last stands for those that it
did not come to, and the others of their role for those that were never read.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from testbed.roles.settings import COORDINATOR, EVALUATOR, SERVER

BUDGET = 0.004
"""Seconds that a sample may take before it begins with no further process."""
_TICKS = os.sysconf("SC_CLK_TCK")
HELPERS = "orchestrator"
"""Role of the processes beside the devices."""


class Usage:
    """The processes of one run, by their ids as this process sees them."""

    def __init__(self, fork_server: int) -> None:
        self._fork_server = fork_server
        self._helpers = {os.getpid(): "agent", fork_server: "fork server"}
        self._awaited: dict[int, str] = {}
        self._roles: dict[int, str] = {}
        self._private: dict[int, int] = {}
        self._turn: list[int] = []
        self._samples = 0

    def helper(self, process: int, name: str) -> None:
        """Count a process in that is no device."""
        self._helpers[process] = name

    def started(self, device: str, process: int) -> None:
        """The fork server has started a device, whose process id is as the fork server sees it."""
        self._awaited[process] = device

    def watch(self, device: str, process: int) -> None:
        """Watch a device's process from now on, by its id as this process sees it."""
        roles = {SERVER: SERVER, EVALUATOR: EVALUATOR, COORDINATOR: HELPERS}
        self._roles[process] = roles.get(device, "workers")

    def memory(self) -> dict[str, int]:
        """Private bytes of each role."""
        self._find()
        deadline = time.monotonic() + BUDGET
        workers = [p for p, role in self._roles.items() if role == "workers"]
        others = [*self._helpers, *(p for p in self._roles if self._roles[p] != "workers")]
        # One of the few others, then workers; at least one, and none twice.
        self._samples += 1
        self._read(others[self._samples % len(others)])
        for _ in workers:
            if not self._turn:
                self._turn = workers[:]
            self._read(self._turn.pop())
            if time.monotonic() > deadline:
                break
        return self._add_up()

    def _add_up(self) -> dict[str, int]:
        known: dict[str, list[int]] = {}
        count: dict[str, int] = {}
        of = self._roles | dict.fromkeys(self._helpers, HELPERS)
        for process, role in of.items():
            count[role] = count.get(role, 0) + 1
            if process in self._private:
                known.setdefault(role, []).append(self._private[process])
        return {role: sum(own) * count[role] // len(own) for role, own in known.items()}

    def processor(self) -> dict[str, float]:
        """Seconds of processor time of each process that is no device, by its name."""
        found = {}
        for process, name in self._helpers.items():
            with contextlib.suppress(OSError, IndexError):
                text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
                user, system = text.rpartition(")")[2].split()[11:13]
                found[name] = (int(user) + int(system)) / _TICKS
        return found

    def _read(self, process: int) -> None:
        try:
            self._private[process] = _private_bytes(process)
        except OSError:  # it has ended, or may not be looked at
            self._private.pop(process, None)
            self._roles.pop(process, None)

    def _find(self) -> None:
        """Find the processes that the fork server has started since."""
        if not self._awaited:
            return
        server = self._fork_server
        try:
            listed = Path(f"/proc/{server}/task/{server}/children").read_text(encoding="utf-8")
        except OSError:  # a kernel without that list, or the fork server has ended
            return
        for process in map(int, listed.split()):
            if process not in self._roles and process not in self._helpers:
                with contextlib.suppress(OSError):
                    device = self._awaited.pop(_one_level_up(process), None)
                    if device is not None:
                        self.watch(device, process)


def _fields(path: str) -> Mapping[str, str]:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return {name: rest for name, _, rest in (line.partition(":") for line in lines)}


def _private_bytes(process: int) -> int:
    fields = _fields(f"/proc/{process}/smaps_rollup")
    return 1024 * sum(
        int(fields[name].split()[0])
        for name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb")
    )


def _one_level_up(process: int) -> int:
    """The id of a process in the namespace around its own."""
    return int(_fields(f"/proc/{process}/status")["NSpid"].split()[-2])

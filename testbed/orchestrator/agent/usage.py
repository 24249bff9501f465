"""Memory of a run's processes by role, read from /proc at a bounded cost; the agent owns it.

A process's private bytes are in ``smaps_rollup``, for which the kernel walks the process's page
tables: 9 ms for a worker that was forked from a process with torch. Reading may therefore take only a
share of the elapsed time; when the share is used up, it continues at the next call. The first process
of a role is read at once, whatever is left of the share. A process that was not reached keeps its last
value, and one that was never read counts as the mean of its role.
"""

import contextlib
import os
import time

from testbed.device_names import COORDINATOR_NAME, EVALUATOR_NAME, SERVER_NAME, is_server
from testbed.nodes import linux

SHARE = 0.002
"""Seconds of processor time that reading may take in each second."""
ADVANCE = 0.05
"""Seconds of processor time that may be saved up; also available at the start."""
_TICKS = os.sysconf("SC_CLK_TCK")
HELPERS = "orchestrator"
"""Role of the processes that are not devices (and of the peers' coordinator)."""


class Usage:
    """Memory and processor time of one run's processes, by process ids as this process sees them."""

    def __init__(self, fork_server: int | None) -> None:
        self._fork_server = fork_server
        self._helpers = {os.getpid(): "agent"}
        if fork_server is not None:
            self._helpers[fork_server] = "fork server"
        self._awaited: dict[int, str] = {}
        self._roles: dict[int, str] = {}
        self._devices: dict[int, str] = {}
        self._seconds: dict[int, float] = {}
        self._private: dict[int, int] = {}
        self._turn: dict[bool, list[int]] = {True: [], False: []}
        self._reads = 0
        self._allowance, self._counted = ADVANCE, time.monotonic()

    def helper(self, process: int, name: str) -> None:
        """Add a process that is not a device."""
        self._helpers[process] = name

    def started(self, device: str, process: int) -> None:
        """Watch a device that was started; the id is as the fork server sees it, if there is one."""
        if self._fork_server is None:
            self.watch(device, process)
        else:
            self._awaited[process] = device

    def watch(self, device: str, process: int) -> None:
        """Read a device's process from now on, by its id as this process sees it."""
        roles = {EVALUATOR_NAME: EVALUATOR_NAME, COORDINATOR_NAME: HELPERS}
        role = SERVER_NAME if is_server(device) else roles.get(device, "workers")
        self._roles[process] = role
        self._devices[process] = device

    def memory(self) -> dict[str, int]:
        """Return the private bytes of each role, as far as they are known."""
        self._find()
        now = time.monotonic()
        self._allowance = min(self._allowance + SHARE * (now - self._counted), ADVANCE)
        self._counted = now
        for process in self._first_of_unread_roles():
            self._read(process)
        for _ in range(len(self._roles)):  # no process is read twice in one call
            if self._allowance <= 0:
                break
            self._read(self._next())
        return self._add_up()

    def _first_of_unread_roles(self) -> list[int]:
        read = {self._roles.get(process) for process in self._private}
        return list({role: p for p, role in self._roles.items() if role not in read}.values())

    def _next(self) -> int:
        """Return the process to read next: workers, alternating with the few others."""
        self._reads += 1
        workers = self._reads % 2 == 1
        turn = self._turn[workers]
        if not turn:
            turn += [p for p, role in self._roles.items() if (role == "workers") is workers]
            turn += [] if workers and turn else self._helpers
            turn.reverse()
        return turn.pop()

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
        """Return the processor time in seconds of each process that is not a device, by its name."""
        found: dict[str, float] = {}
        for process, name in self._helpers.items():
            with contextlib.suppress(OSError, IndexError):
                found[name] = found.get(name, 0.0) + _processor_seconds(process)
        return found

    def processor_of_devices(self) -> dict[str, float]:
        """Return the processor time in seconds of each device's processes.

        Of one that has ended it is as it was last read; earlier calls have read it.
        """
        self._find()
        found: dict[str, float] = {}
        for process, device in self._devices.items():
            with contextlib.suppress(OSError, IndexError):
                self._seconds[process] = _processor_seconds(process)
            found[device] = found.get(device, 0.0) + self._seconds.get(process, 0.0)
        return found

    def _read(self, process: int) -> None:
        began = time.thread_time()
        try:
            self._private[process] = _private_bytes(process)
        except OSError:  # the process has ended, or may not be read
            self._private.pop(process, None)
            self._roles.pop(process, None)
        self._allowance -= time.thread_time() - began

    def _find(self) -> None:
        """Find the processes that the fork server has started since the last call."""
        if not self._awaited or self._fork_server is None:
            return
        for process in linux.children_of(self._fork_server):
            if process not in self._roles and process not in self._helpers:
                with contextlib.suppress(OSError):
                    device = self._awaited.pop(linux.one_level_up(process), None)
                    if device is not None:
                        self.watch(device, process)


def _processor_seconds(process: int) -> float:
    user, system = linux.stat_of(process)[11:13]
    return (int(user) + int(system)) / _TICKS


def _private_bytes(process: int) -> int:
    fields = linux.fields_of(f"/proc/{process}/smaps_rollup")
    return 1024 * sum(
        int(fields[name][0]) for name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb")
    )

"""The agent's end of the connections to roles that are started by their containers' own Python.

Each container holds one connection to a Unix socket in the run's folder, which it sees. Over it the
agent sends what a forked role inherits: its settings, its arguments, the descriptors that it shares
with other roles, and those for its reports and its log. When the connection ends, the role has ended;
when the agent ends, the roles end, too. A role that comes back is a new process of the same container.

Who connects is asked of the kernel: only the process that the engine has started in a container gets
what its device gets. What it sends is believed of its own device only; one that sends anything else is
killed.
"""

import contextlib
import os
import selectors
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.channel import MOST_DESCRIPTORS, Channel, InvalidMessageError
from testbed.messages.agent_reports import (
    LibrariesLoaded,
    NodeEvent,
    ProcessExited,
    ProcessStarted,
    RunFailed,
    WarningRaised,
)
from testbed.messages.codec import send
from testbed.messages.processes import (
    CONTAINER_EVENTS,
    ContainerEvent,
    LoadRole,
    RunRole,
    ShareDescriptors,
)
from testbed.messages.requests import Load
from testbed.nodes.node_interface import Device
from testbed.nodes.role_output import RoleOutput

SOCKET = "agent.sock"
LONGEST = 65_536
"""Bytes of the longest message of a container that is read; a reason of some lines is the longest."""
_CREDENTIALS = struct.Struct("=iII")
_EARLY = 64
"""Connections beyond those of devices that wait for the engine to name the processes."""


class RoleConnections:
    """The socket that a run's containers connect to, and their connections."""

    def __init__(self, folder: Path, load: Load, shared: Callable[[Any], Sequence[int]]) -> None:
        """Listen on a socket in the run's folder.

        Args:
            folder: the run's folder, which containers see.
            shared: returns the descriptors that a role with these arguments gets; only this knows
                their keys.
        """
        self.path = folder / SOCKET
        self._load = load
        self._shared = shared
        self._output = RoleOutput()
        self._selector = selectors.EpollSelector()
        self._selector.register(self._output, selectors.EVENT_READ)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self.path.chmod(0o666)
        self._listener.listen(4096)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._connected: dict[str, Channel] = {}
        self._expected: set[str] = set()
        self._memory: dict[str, int | None] = {}
        # By device: its present process, or the last one, and while that runs a descriptor of it.
        self._started: dict[str, int] = {}
        self._processes: dict[str, int] = {}
        self._early: dict[int, Channel] = {}
        self._loading: set[str] = set()
        self._all_loaded = False
        self._ended: set[str] = set()
        # By device whose process is loading: what to run then, and its channel for reports.
        self._waiting: dict[str, tuple[Mapping[str, object], int]] = {}

    def expect(self, devices: Sequence[Device]) -> None:
        """Set the devices that will connect: ``loaded`` is reported once all of them have loaded."""
        self._expected = {device.name for device in devices}
        self._memory = {device.name: device.memory for device in devices}

    def watch(self, device: str, started: int) -> None:
        """Report when a container's process ends, even if it never connects; have it load."""
        if device in self._connected:
            self._close(self._connected.pop(device))
        self._started[device] = started
        self._loading.add(device)
        self._ended.discard(device)
        try:
            process = os.pidfd_open(started)
        except ProcessLookupError:
            process = os.eventfd(1)  # readable, like the pidfd of a process that has ended
        self._selector.register(process, selectors.EVENT_READ, device)
        self._processes[device] = process
        if started in self._early:
            self._welcome(self._early.pop(started), device)

    def has_ended(self, device: str) -> bool:
        """Return True if a device's process has ended, and that was reported."""
        return device in self._ended

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are ``events``."""
        return self._selector.fileno()

    def events(self) -> Iterator[NodeEvent]:
        """Yield what has happened; see ``testbed.nodes.node_interface.Nodes``."""
        for key, _ in self._selector.select(0):
            if key.fileobj is self._listener:
                self._accept()
                continue
            self._output.pass_on()  # what a role says at its end is in the log when its end is known
            if key.fileobj is self._output:
                continue
            device = key.data
            if isinstance(key.fileobj, int):
                yield from self._died(key.fileobj, device)
                continue
            yield from self._hear(key.fileobj, device)  # type: ignore[arg-type]

    def _died(self, process: int, device: str) -> Iterator[NodeEvent]:
        """Close the descriptor of a process that has ended."""
        self._selector.unregister(process)
        os.close(process)
        if self._processes.get(device) == process:  # no other one has been started since
            del self._processes[device]
            if device not in self._connected:  # a connection reports the end itself
                yield from self._gone(device)

    def _accept(self) -> None:
        """Take a connection, if it may be that of a container's process."""
        accepted, _ = self._listener.accept()
        found = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, _, _ = _CREDENTIALS.unpack(found)
        channel = Channel(accepted)
        # One that has ended is none of them: another process may have its number now.
        device = next((one for one in self._processes if self._started[one] == process), None)
        if device is not None and device not in self._connected:
            self._welcome(channel, device)
        elif (
            self._expected - self._started.keys()  # the engine has yet to name some
            and process not in self._early
            and len(self._early) < len(self._expected) + _EARLY
        ):
            self._early[process] = channel
        else:
            channel.close()

    def _welcome(self, channel: Channel, device: str) -> None:
        """Have a container load."""
        self._selector.register(channel, selectors.EVENT_READ, device)
        self._connected[device] = channel
        load = LoadRole(self._load["entry"], self._load["arguments"])
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its end is read next
            send(channel, load, [self._output.writing])

    def _hear(self, channel: Channel, device: str) -> Iterator[NodeEvent]:
        """Take a container's next message, or the end of its connection."""
        try:
            received = channel.receive(most=LONGEST)
            event = None if received is None else CONTAINER_EVENTS.decode(received)
            if isinstance(event, RunFailed) and device not in self._loading:
                raise InvalidMessageError("that it cannot load, after it had loaded")
        except InvalidMessageError as error:
            yield WarningRaised(f"{device} has sent {error}, and is killed")
            self.kill(device)
            event = None
        if event is not None:
            yield from self._events_of(device, event)
            return
        self._close(channel)
        yield from self._gone(device)

    def _close(self, channel: Channel) -> None:
        self._selector.unregister(channel)
        channel.close()

    def _events_of(self, device: str, event: ContainerEvent) -> Iterator[NodeEvent]:
        match event:
            case LibrariesLoaded() if device in self._loading:
                self._loading.remove(device)
                yield ProcessStarted(device, self._started[device])
                if not (self._all_loaded or self._loading or self._expected - self._started.keys()):
                    self._all_loaded = True
                    yield LibrariesLoaded()
                self._run_what_waits(device)
            case RunFailed(reason):
                yield RunFailed(f"{device}: {reason}")
            case ProcessExited(_, status) if device not in self._ended:
                self._ended.add(device)
                yield ProcessExited(device, status)

    def _too_early(self, device: str) -> str:
        limit = self._memory.get(device)
        memory = "" if limit is None else f"; it had {limit / 2**20:.0f} MiB of memory to load in"
        return f"the container of {device} ended before its role began{memory}"

    def _gone(self, device: str) -> Iterator[NodeEvent]:
        self._connected.pop(device, None)
        if device in self._ended:
            return
        self._ended.add(device)
        if device in self._waiting:
            os.close(self._waiting.pop(device)[1])
        if self._all_loaded or device not in self._loading:
            yield ProcessExited(device, -signal.SIGKILL)
        else:
            yield RunFailed(self._too_early(device))

    def start(self, device: str, role: Mapping[str, object], report: int) -> None:
        """Send a container's process its role once it has loaded, unless it has ended.

        Args:
            report: descriptor of the channel for its reports; the caller closes it.
        """
        if device in self._loading and device not in self._ended:
            self._waiting[device] = role, os.dup(report)
        elif device in self._connected:
            self._run(self._connected[device], role, report)

    def _run_what_waits(self, device: str) -> None:
        if device in self._waiting:
            role, report = self._waiting.pop(device)
            self._run(self._connected[device], role, report)
            os.close(report)

    def _run(self, channel: Channel, role: Mapping[str, object], report: int) -> None:
        shared = list(self._shared(role))
        try:
            for i in range(0, len(shared), MOST_DESCRIPTORS):
                part = shared[i : i + MOST_DESCRIPTORS]
                send(channel, ShareDescriptors(), part)
            send(channel, RunRole(role), [report])
        except (BrokenPipeError, ConnectionResetError):
            return  # ``events`` reports its end next

    def kill(self, device: str) -> None:
        """Kill a device's process, if it runs."""
        if device in self._processes:
            with contextlib.suppress(OSError):  # it has ended
                signal.pidfd_send_signal(self._processes[device], signal.SIGKILL)

    def close(self) -> None:
        """Close every connection, which ends the processes that still run."""
        for channel in (*self._connected.values(), *self._early.values()):
            channel.close()
        for _, report in self._waiting.values():
            os.close(report)
        self._listener.close()
        self._output.pass_on()
        self._output.close()

"""The agent's end of the connections to roles that are started by their containers' own Python.

Each container holds one connection to a Unix socket in the run's folder, which it sees. Over it the
agent sends what a forked role inherits: its settings, its arguments, the descriptors that it shares
with other roles, and those for its reports and its log. When the connection ends, the role has ended;
when the agent ends, the roles end, too.

Who connects is asked of the kernel: only a container's first process gets what its device gets. What a
container sends is believed of its own device only; one that sends anything else is killed.
"""

import contextlib
import os
import selectors
import signal
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

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
"""Connections beyond those of devices that wait for the engine to name the first processes."""


class SharedDescriptors(Protocol):
    """Resources that the roles of a run share by descriptor."""

    def descriptors(self, role: Any) -> Sequence[int]:
        """Return the descriptors that a role with these arguments gets; only this knows their keys."""


class RoleConnections:
    """The socket that a run's containers connect to, and their connections.

    Attributes:
        path: path of the socket.
    """

    def __init__(self, folder: Path, load: Load, shared: SharedDescriptors) -> None:
        """Listen on a socket in the run's folder.

        Args:
            folder: the run's folder, which containers see.
            load: what every container loads.
            shared: what roles share by descriptor.
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
        self._first: dict[str, int] = {}
        self._processes: dict[str, int] = {}
        self._early: dict[int, Channel] = {}
        self._loaded: set[str] = set()
        self._ended: set[str] = set()

    def expect(self, devices: Sequence[Device]) -> None:
        """Set the devices that will connect: ``loaded`` is reported once all of them have loaded."""
        self._expected = {device.name for device in devices}
        self._memory = {device.name: device.memory for device in devices}

    def watch(self, device: str, first: int) -> None:
        """Report when a container's first process ends, even if it never connects; have it load."""
        self._first[device] = first
        try:
            process = os.pidfd_open(first)
        except ProcessLookupError:
            process = os.eventfd(1)  # readable, like the pidfd of a process that has ended
        self._selector.register(process, selectors.EVENT_READ, device)
        self._processes[device] = process
        if first in self._early:
            self._welcome(self._early.pop(first), device)

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
                self._selector.unregister(key.fileobj)
                os.close(self._processes.pop(device))
                if device not in self._connected:  # a connection reports the end itself
                    yield from self._gone(device)
                continue
            yield from self._hear(key.fileobj, device)  # type: ignore[arg-type]

    def _accept(self) -> None:
        """Take a connection, if it may be that of a container's first process."""
        accepted, _ = self._listener.accept()
        found = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, _, _ = _CREDENTIALS.unpack(found)
        channel = Channel(accepted)
        # One that has ended is none of them: another process may have its number now.
        device = next((one for one in self._processes if self._first[one] == process), None)
        if device is not None and device not in self._connected:
            self._welcome(channel, device)
        elif (
            self._expected - self._first.keys()  # the engine has yet to name some
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
            if isinstance(event, RunFailed) and device in self._loaded:
                raise InvalidMessageError("that it cannot load, after it had loaded")
        except InvalidMessageError as error:
            yield WarningRaised(f"{device} has sent {error}, and is killed")
            if device in self._processes:
                with contextlib.suppress(OSError):  # it has ended
                    signal.pidfd_send_signal(self._processes[device], signal.SIGKILL)
            event = None
        if event is not None:
            yield from self._events_of(device, event)
            return
        self._selector.unregister(channel)
        channel.close()
        yield from self._gone(device)

    def _events_of(self, device: str, event: ContainerEvent) -> Iterator[NodeEvent]:
        match event:
            case LibrariesLoaded() if device not in self._loaded:
                self._loaded.add(device)
                yield ProcessStarted(device, self._first[device])
                if self._loaded == self._expected:
                    yield LibrariesLoaded()
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
        if device in self._loaded:
            yield ProcessExited(device, -signal.SIGKILL)
        else:
            yield RunFailed(self._too_early(device))

    def start(self, device: str, role: Mapping[str, object], report: int) -> None:
        """Send a container's process its role, unless the process has ended.

        Args:
            report: descriptor of the channel for its reports; the caller closes it.
        """
        channel = self._connected.get(device)
        if channel is None:
            return
        shared = list(self._shared.descriptors(role))
        try:
            for i in range(0, len(shared), MOST_DESCRIPTORS):
                part = shared[i : i + MOST_DESCRIPTORS]
                send(channel, ShareDescriptors(), part)
            send(channel, RunRole(role), [report])
        except (BrokenPipeError, ConnectionResetError):
            return  # ``events`` reports its end next

    def close(self) -> None:
        """Close every connection, which ends the processes that still run."""
        for channel in (*self._connected.values(), *self._early.values()):
            channel.close()
        self._listener.close()
        self._output.pass_on()
        self._output.close()

"""``testbed exec`` in a device on another host: the caller's side, and that of the host.

The caller calls the host's agent with what the run's relay to that host has published. The host begins
the command as ``testbed exec`` there would, with a terminal of its own if the caller has one, and
carries its streams. The command ends with the connection: with the caller, or if the way is cut.
"""

import contextlib
import fcntl
import json
import os
import signal
import struct
import termios
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from testbed.errors import EntryError, HostError
from testbed.json_dataclasses import of_plain
from testbed.nodes import forked_process, linux, run_names, terminal_job
from testbed.nodes.node_table import published
from testbed.orchestrator.hosts.carried_streams import CarriedStreams
from testbed.orchestrator.hosts.hosts_file import matches
from testbed.orchestrator.hosts.member import HOST, HostTable, Member
from testbed.orchestrator.hosts.relay import CONTROL, FrameKind
from testbed.orchestrator.hosts.secured_connection import (
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
)
from testbed.runs.device_place import AgentHere, agent_below, place_of, status_of
from testbed.runs.ending import noted

_STREAMS = (0, 1, 2)
_TO_GROUP = (signal.SIGINT, signal.SIGQUIT)
"""Signals for the command and its children, as a terminal sends them."""
_TO_COMMAND = (signal.SIGTERM, signal.SIGHUP)
_OF_CALLER = (*_TO_GROUP, *_TO_COMMAND, signal.SIGWINCH)
_SIZE = struct.Struct("!HH")
"""Lines and columns of a terminal."""


@dataclass(frozen=True, slots=True)
class EnterDevice:
    """A request for a command in a device.

    Attributes:
        run: the run's id, for messages; ``first_tunnel`` is what it is known by.
        command: empty for a shell.
        kind: of the caller's terminal (``TERM``); None if it is not known.
        shown: the standard streams that are the terminal.
        size: its lines and columns.
    """

    run: str
    first_tunnel: int
    device: str
    command: Sequence[str]
    kind: str | None
    shown: Sequence[int]
    size: tuple[int, int] = (0, 0)


def host_of(
    agent: AgentHere, device: str, named: Mapping[str, Sequence[str]]
) -> tuple[HostTable | None, Sequence[str]]:
    """Return the table of the host that a device of a run is on, and the names of all on other hosts.

    Args:
        agent: the run's on this host.
        named: the devices of each other host, as the manifest has them.

    Returns:
        No table for a device that is on none of them.

    Raises:
        EntryError: its host is lost; or processes of the run have ended, or are another user's.
    """
    found: HostTable | None = None
    devices, there = list[str](), set[str]()
    try:
        for process in psutil.Process(agent.parent).children():
            with contextlib.suppress(psutil.Error):  # it has just ended
                if not "".join(process.cmdline()[:1]).startswith(f"{run_names.RELAY}-"):
                    continue
                table = published(HostTable, HOST, Path("/proc", str(process.pid)))
                if table is not None:  # a relay has it as long as its host is not lost
                    there.add(table.host.name)
                    devices += table.devices
                    found = table if device in table.devices else found
    except (psutil.NoSuchProcess, PermissionError, ValueError) as error:
        raise EntryError(f"{agent.run} cannot be entered: {error}") from error
    for name, patterns in named.items():
        if name not in there and any(matches(pattern, device) for pattern in patterns):
            raise EntryError(f"{device} of {agent.run} cannot be entered: its host {name} is lost")
    return found, devices


# -- the caller's side


def enter_elsewhere(host: HostTable, run: str, device: str, command: Sequence[str]) -> int:
    """Run a command in a device on another host, with this process's streams; return its exit status.

    What cannot be done there is said there, on the command's standard errors.

    Raises:
        EntryError: the host does not answer, or the connection has ended.
    """
    shown = [stream for stream in _STREAMS if os.isatty(stream)]
    if not {0, 1} <= {*shown}:
        shown = []
    kind = os.environ.get("TERM")
    wanted = EnterDevice(run, host.first_tunnel, device, command, kind, shown)
    try:
        member = Member.called(host.host, host.secret.encode())
        with member.connection.socket:
            return _entered(member.connection, wanted)
    except HostError as error:
        raise EntryError(f"{device} of {run} cannot be entered: {error}") from error
    except ConnectionLostError as error:
        text = f"{device} of {run}: {host.host.described}: {error}, and with it the command"
        raise EntryError(text) from error


def _entered(connection: SecuredConnection, wanted: EnterDevice) -> int:
    streams = CarriedStreams(connection, {0: os.dup(0)}, {1: os.dup(1), 2: os.dup(2)})
    raw = terminal_job.raw() if wanted.shown else contextlib.nullcontext()
    status: int | None = None
    with contextlib.closing(streams), noted(_OF_CALLER) as came, raw:
        if wanted.shown:
            wanted = replace(wanted, size=termios.tcgetwinsize(0))
        streams.send(FrameKind.ENTER, CONTROL, json.dumps(asdict(wanted)).encode())
        while status is None or streams.waits:
            signalled, frames = streams.turn(came)
            for number in os.read(came, 64) if signalled else b"":
                if status is not None and number != signal.SIGWINCH:
                    return 128 + number  # what the command has written is not read
                with contextlib.suppress(termios.error):  # it has no terminal, or not any more
                    resized = number == signal.SIGWINCH
                    size = _SIZE.pack(*termios.tcgetwinsize(0)) if resized else b""
                    streams.send(FrameKind.SIGNAL, number, size)
            for frame in frames:
                if frame.kind != FrameKind.ENDED:
                    raise ConnectionLostError("it has sent something else than a command's streams")
                status = frame.channel
                streams.close_sources()
    return status


# -- the host's side


def serve_entry(connection: SecuredConnection, frames: Sequence[HostFrame], service: int) -> None:
    """Run the command that the first of some frames asks for, and carry its streams until it has ended.

    Args:
        frames: those that have come already.
        service: id of the process that has started the agents of this host's runs.

    Raises:
        ConnectionLostError: the connection has ended before the command, which is killed.
    """
    try:
        wanted = of_plain(EnterDevice, json.loads(frames[0].content))
    except (ValueError, RecursionError) as error:
        raise ConnectionLostError("it has asked for a command as nobody does") from error
    sources, sinks, theirs = _opened(wanted)
    parent, files = os.getpid(), (theirs[0], theirs[1], theirs[2])
    front = forked_process.fork(run_names.ENTRY, lambda: _enter(wanted, service, parent), files)
    ended = os.pidfd_open(front)
    for one in {*files}:
        os.close(one)
    streams = CarriedStreams(connection, sources, sinks, frames[1:])
    try:
        over = False
        while not (over and streams.are_read):
            end, others = streams.turn(None if over else ended)
            over = over or end
            for frame in others:
                _signal(frame, front, sinks.get(0) if wanted.shown else None, over=over)
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(ended, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(front, 0)[1])
        os.close(ended)
        streams.close()
    streams.send(FrameKind.ENDED, 128 - status if status < 0 else status)
    with contextlib.suppress(ConnectionLostError):
        while True:  # a connection that this side closes may lose what is on the way
            streams.turn()


def _opened(wanted: EnterDevice) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Return the descriptors to read and to write, and those of the command, by their streams."""
    sources, sinks, theirs = dict[int, int](), dict[int, int](), dict[int, int]()
    if wanted.shown:
        sinks[0], terminal = os.openpty()
        sources[1] = os.dup(sinks[0])
        termios.tcsetwinsize(terminal, wanted.size)
        theirs = dict.fromkeys(wanted.shown, terminal)
    for stream in _STREAMS:
        if stream not in theirs:
            ends = (theirs, sinks) if stream == 0 else (sources, theirs)
            for of_stream, one in zip(ends, os.pipe(), strict=True):
                of_stream[stream] = one
    for one in (*sources.values(), *sinks.values()):
        os.set_blocking(one, False)
    return sources, sinks, theirs


def _enter(wanted: EnterDevice, service: int, parent: int) -> int:
    linux.die_with_parent(signal.SIGKILL, parent)
    if wanted.shown:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    variables = {name: value for name, value in os.environ.items() if name != "TESTBED_SECRET"}
    if wanted.kind is not None:
        variables["TERM"] = wanted.kind

    def enter() -> int:
        agent = agent_below(service, wanted.run, wanted.first_tunnel)
        with place_of(agent, wanted.device) as place:
            return place.enter(wanted.command, variables)

    try:
        return status_of(enter)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _signal(frame: HostFrame, front: int, terminal: int | None, *, over: bool) -> None:
    """Give the command a signal of the caller's.

    Raises:
        ConnectionLostError: it is none.
    """
    number = frame.channel
    if frame.kind != FrameKind.SIGNAL:
        raise ConnectionLostError("it has sent something else than a command's streams")
    if number == signal.SIGWINCH and terminal is not None and len(frame.content) == _SIZE.size:
        with contextlib.suppress(OSError):
            termios.tcsetwinsize(terminal, _SIZE.unpack(frame.content))
    elif number in _TO_GROUP and not over:
        os.killpg(front, number)
    elif number in _TO_COMMAND and not over:
        os.kill(front, number)

"""The keeper: the first process of a device that runs programs of users.

It starts what the orchestrator asks for, keeps the output, finds out when a program is ready, reads
measurements, and reports how each program has ended. Programs are its children, and what they leave in
the background becomes so: when the keeper is killed, the kernel ends all of them.

Where programs are containers (``testbed.containers.program_containers``), the keeper is not the first
process of the device, and its child for each program only starts and watches the container. All else
is the same: programs and keeper share a network and a pid namespace.

It is one process with one thread and never waits for a program.
"""

import contextlib
import ipaddress
import os
import re
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypedDict

import psutil

from testbed.channel import Channel
from testbed.messages.codec import send
from testbed.messages.keeper_messages import (
    KEEPER_REQUESTS,
    EndPrograms,
    KeeperReport,
    PortsOpened,
    ProgramEnded,
    ProgramMeasured,
    ProgramReady,
    ProgramUnready,
    ProgramWarned,
    StartProgram,
)
from testbed.nodes import forked_process, linux
from testbed.nodes.child_exits import ChildExits
from testbed.nodes.fork_server import Role
from testbed.nodes.program_output import Followed, ProgramOutput, values_of_json, values_of_match

MARK = "TESTBED_PROGRAM"
"""The environment variable by which a process is told to belong to a program."""
_LOOK_PERIOD = 0.1
"""Seconds between two looks at what no signal tells of: files, and ports that are awaited."""
_FIRST_PORTS, _LAST_PORTS = 1.0, 10.0
"""Seconds between two looks for new ports, at first and at most; after one that finds none they double.
A look takes 3 ms of a processor: the kernel goes through its table of all connections."""
_ONLY_HERE = 5.0
"""Seconds after which a program that listens on the loopback alone is not waited for any longer."""
_LEFT_PATIENCE = 1.0
"""Seconds that processes have which a program has left in the background, before they are killed."""
CANNOT_START = forked_process.NO_PROGRAM
"""The exit status of a program that fails before it is one."""
Become: TypeAlias = Callable[[StartProgram, Sequence[str] | None], int]
"""Turns a child of the keeper into a program, or into the command that tries whether that is ready.

It returns the exit status, or not at all; what it says goes to its standard output.
"""


_Port: TypeAlias = tuple[str, int]
"""``tcp`` or ``udp``, and the number."""


class KeeperArguments(TypedDict):
    """The arguments of a keeper.

    Attributes:
        folder: path of the device's own folder.
        home: path at which the device sees its home.
        output: the bytes of output that are kept of a program.
    """

    folder: str
    home: str
    output: int


def load(_arguments: object) -> Role[KeeperArguments]:
    """Return the function of the keepers, which the fork server calls in each device."""
    return keep


def execute(request: StartProgram, check: Sequence[str] | None) -> int:
    """Execute a program, or the command that tries whether it is ready; see ``Become``."""
    command = request.command if check is None else check
    text, status = forked_process.execute(command, request.environment)
    os.write(2, f"{text}\n".encode(errors="backslashreplace"))
    return status


def keep(role: KeeperArguments, reports: Channel, become: Become = execute) -> int:
    """Keep the programs of a device until the orchestrator has them end; return the exit status.

    Args:
        reports: the channel on which requests come and reports go.
        become: starts a program in a child of this process.
    """
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the orchestrator is gone
        os.chdir(role["home"])
        Keeper(Path(role["folder"]), role["output"], reports, become).serve()
    return 0


@dataclass(slots=True)
class _Program:
    """A program that runs.

    Attributes:
        process: its first process.
        began: when it was started, in seconds of CLOCK_MONOTONIC.
        ended: when its first process ended, and with which status; None while it runs.
        only_here: since when it listens on the loopback alone; None if it does not.
        checking: the process of a ``command`` that tries whether it is ready; None while none runs.
        ports: where it can be reached.
    """

    request: StartProgram
    process: int
    began: float
    output: ProgramOutput
    pattern: re.Pattern[str] | None
    said: re.Pattern[str] | None
    followed: Followed | None
    ready: bool = False
    ended: tuple[float, int] | None = None
    only_here: float | None = None
    checking: int | None = None
    ports: set[_Port] = field(default_factory=set)
    warned: bool = False


class Keeper:
    """Keeps the programs of one device, in this process's working folder."""

    def __init__(self, folder: Path, output: int, channel: Channel, become: Become) -> None:
        self._folder, self._limit, self._channel = folder, output, channel
        self._become = become
        self._programs: dict[str, _Program] = {}
        self._selector = selectors.DefaultSelector()
        self._exits = ChildExits()
        self._kill_at: float | None = None
        self._patience = 0.0
        self._next_ports, self._ports_period = 0.0, _FIRST_PORTS

    def serve(self) -> None:
        """Serve until all programs have ended after ``EndPrograms``, or the channel has ended."""
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._exits, selectors.EVENT_READ)
        while True:
            if self._kill_at is not None and not self._programs and not self._processes():
                return
            for key, _ in self._selector.select(self._period()):
                if key.fileobj is self._channel:
                    request = KEEPER_REQUESTS.receive(self._channel)
                    if request is None:
                        return
                    self._serve(request)
                elif key.fileobj is self._exits:
                    self._take_exits()
                elif isinstance(key.data, _Program):
                    self._read(key.data)
            self._look()

    def _period(self) -> float | None:
        """Return the seconds until the next look; None if only what selectors tell is awaited."""
        if self._kill_at is not None or any(map(_is_looked_at, self._programs.values())):
            return _LOOK_PERIOD
        return max(0.0, self._next_ports - time.monotonic()) if self._programs else None

    def _serve(self, request: StartProgram | EndPrograms) -> None:
        if isinstance(request, StartProgram):
            self._start(request)
            return
        self._look_at_ports()
        self._kill_at, self._patience = time.monotonic() + request.patience, request.patience
        self._signal_all(signal.SIGTERM)

    # -- starting

    def _start(self, request: StartProgram) -> None:
        measure = request.measure
        followed = Followed(Path(measure["file"])) if "file" in measure else None
        output = ProgramOutput(self._folder / f"{request.program}.log", self._limit)
        process = self._fork(request, output.writing)
        output.close_writing()
        program = _Program(
            request,
            process,
            time.monotonic(),
            output,
            re.compile(measure["pattern"]) if "pattern" in measure else None,
            re.compile(request.ready["output"]) if "output" in request.ready else None,
            followed,
        )
        self._programs[request.program] = program
        self._await_ports()
        self._selector.register(output, selectors.EVENT_READ, program)
        if not request.ready:
            self._is_ready(program)

    def _fork(self, request: StartProgram, output: int, check: Sequence[str] | None = None) -> int:
        """Start a process with an output of its own, in a session of its own; return its id.

        Args:
            check: the command that tries whether the program is ready; None for the program itself.
        """
        process = os.fork()
        if process:
            return process
        status = CANNOT_START
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            self._exits.close()  # which also restores SIGCHLD
            os.setsid()
            # What the keeper has from its parent, or Python has set, is not for a program.
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            status = self._become(request, check)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    # -- what programs say

    def _read(self, program: _Program) -> None:
        lines = program.output.read()
        if lines is None:
            self._selector.unregister(program.output)
            return
        self._take_lines(program, lines)

    def _take_lines(self, program: _Program, lines: Iterable[str]) -> None:
        for line in lines:
            if program.said is not None and not program.ready and program.said.search(line):
                self._is_ready(program)
            if program.pattern is not None:
                self._measured(program, values_of_match(program.pattern, line))
        if complaint := program.output.complaint():
            self._report(ProgramWarned(program.request.program, complaint))

    def _take_measurements(self, program: _Program, *, last: bool = False) -> None:
        """Take in the lines of the file of measurements that are new; ``last`` as for ``Followed``."""
        for line in program.followed.read(last=last) if program.followed else ():
            values = values_of_json(line)
            if values is None and line.strip() and not program.warned:
                program.warned = True
                text = (
                    f"has written a line that is no JSON object to its measurements: {line[:100]!r}"
                )
                self._report(ProgramWarned(program.request.program, text))
            self._measured(program, values or {})

    def _measured(self, program: _Program, values: Mapping[str, float]) -> None:
        if values:
            self._report(ProgramMeasured(program.request.program, time.monotonic(), values))

    # -- ends

    def _take_exits(self) -> None:
        by_process = {one.process: one for one in self._programs.values()}
        checks = {one.checking: one for one in self._programs.values() if one.checking}
        for process, status in self._exits.read():
            if process in by_process:
                by_process[process].ended = time.monotonic(), status
            elif process in checks:
                checks[process].checking = None
                if status == 0 and not checks[process].ready:
                    self._is_ready(checks[process])

    def _look(self) -> None:
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            for program in self._programs.values():
                if program.ended is None:
                    text = f"did not end within {self._patience:g} s of SIGTERM, and is killed"
                    self._report(ProgramWarned(program.request.program, text))
            self._signal_all(signal.SIGKILL)
            self._kill_at = now + max(self._patience, _LEFT_PATIENCE)
        for program in list(self._programs.values()):
            self._take_measurements(program)
            if program.ended is not None:
                self._look_at_ended(program, now)
            elif not program.ready and self._kill_at is None:
                self._look_if_ready(program, now)
        if now >= self._next_ports and self._programs:
            self._next_ports = now + self._ports_period
            self._ports_period = min(2 * self._ports_period, _LAST_PORTS)
            self._look_at_ports()

    def _look_at_ended(self, program: _Program, now: float) -> None:
        """Report a program whose first process has ended, once nothing of it is left."""
        assert program.ended is not None
        when, _ = program.ended
        if program.checking is not None:  # it is not of the program, and could run for ever
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.checking, signal.SIGKILL)
        # At the run's end what it has left has as long as the program itself.
        waits = self._kill_at is not None or now < when + _LEFT_PATIENCE
        if not (waits and any(self._left(program))):
            self._finish(program)

    def _finish(self, program: _Program) -> None:
        """Report the end of a program, and kill what it has left in the background."""
        left = list(self._left(program)) if self._kill_at is None else []
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        name = program.request.program
        with contextlib.suppress(KeyError):
            self._selector.unregister(program.output)
        self._take_lines(program, program.output.rest())
        self._take_measurements(program, last=True)
        program.output.close()
        del self._programs[name]
        assert program.ended is not None
        _, status = program.ended
        self._report(ProgramEnded(name, status, list(program.output.last), len(left)))

    def _left(self, program: _Program) -> Iterator[int]:
        """Yield the processes of a program but its first one."""
        for process in self._processes():
            if process != program.process and self._program_of(process) == program.request.program:
                yield process

    def _program_of(self, process: int) -> str:
        """Return the program to which a process belongs, by its session or else by its mark.

        A server that writes its title over its environment, as many do, has no mark.
        """
        with contextlib.suppress(ProcessLookupError):
            session = os.getsid(process)
            for name, program in self._programs.items():
                if program.process == session:
                    return name
        return _marked(process)

    def _processes(self) -> list[int]:
        """Return the device's processes that run, but for its first one and the keeper."""
        own = 1, os.getpid()
        return [one for one in linux.processes() if one not in own and not linux.is_over(one)]

    def _signal_all(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)  # all in this pid namespace but its first process and this one

    # -- readiness

    def _is_ready(self, program: _Program) -> None:
        program.ready = True
        self._await_ports()
        self._report(ProgramReady(program.request.program))

    def _look_if_ready(self, program: _Program, now: float) -> None:
        sign, late = program.request.ready, None
        if "tcp" in sign:
            late = self._look_at_port(program, int(sign["tcp"]), now)
        elif "file" in sign and Path(sign["file"]).exists():
            self._is_ready(program)
        elif "command" in sign and program.checking is None:
            quiet = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            program.checking = self._fork(program.request, quiet, sign["command"])
            os.close(quiet)
        if not program.ready and now >= program.began + sign["within"]:
            late = late or f"was not ready within {sign['within']:g} s: {_awaited(sign)}"
        if late and not program.ready:
            program.ready = True  # it is told of once
            self._report(ProgramUnready(program.request.program, late))

    def _look_at_port(self, program: _Program, port: int, now: float) -> str | None:
        """Find out if a port can be reached; return why it will not be, or None."""
        own = [one for one in _listeners() if one.port == ("tcp", port)]
        if any(not one.only_here for one in own):
            self._is_ready(program)
        elif own:
            program.only_here = program.only_here or now
            if now >= program.only_here + _ONLY_HERE:
                return (
                    f"listens on 127.0.0.1:{port} only, where no other device can reach it: have it "
                    "listen on 0.0.0.0"
                )
        return None

    # -- ports

    def _await_ports(self) -> None:
        """Look for new ports now, and soon again: a program has begun, and may open some."""
        self._next_ports, self._ports_period = 0.0, _FIRST_PORTS

    def _look_at_ports(self) -> None:
        """Report the ports that programs have opened, for the tables of traffic."""
        known = {port for one in self._programs.values() for port in one.ports}
        new: dict[str, set[_Port]] = {}
        for one in _listeners():
            if not one.only_here and one.port not in known and one.process is not None:
                new.setdefault(self._program_of(one.process), set()).add(one.port)
        for name in new.keys() & self._programs.keys():
            self._ports_period = _FIRST_PORTS  # others may follow
            self._programs[name].ports |= new[name]
            tcp, udp = (
                sorted(port for own, port in new[name] if own == kind) for kind in ("tcp", "udp")
            )
            self._report(PortsOpened(name, tcp, udp))

    def _report(self, report: KeeperReport) -> None:
        send(self._channel, report)


class _Listener(NamedTuple):
    """A socket of this process's network namespace that waits for others.

    Attributes:
        only_here: True if it can be reached over the loopback only.
        process: one that has it open; None if there is none.
    """

    port: _Port
    only_here: bool
    process: int | None


def _listeners() -> Iterator[_Listener]:
    for one in psutil.net_connections("inet"):
        is_tcp = one.type == socket.SOCK_STREAM
        if one.laddr and (one.status == psutil.CONN_LISTEN if is_tcp else not one.raddr):
            address = ipaddress.ip_address(one.laddr.ip)
            if isinstance(address, ipaddress.IPv6Address):
                address = address.ipv4_mapped or address
            port = "tcp" if is_tcp else "udp", one.laddr.port
            yield _Listener(port, address.is_loopback, one.pid)


def _is_looked_at(program: _Program) -> bool:
    return not program.ready or program.ended is not None or program.followed is not None


def _awaited(sign: Mapping[str, Any]) -> str:
    match sign:
        case {"tcp": port}:
            return f"nothing listens on TCP port {port}"
        case {"output": pattern}:
            return f"no line of its output matches '{pattern}'"
        case {"file": path}:
            return f"there is no file '{path}'"
    return f"'{' '.join(sign['command'])}' does not end with status 0"


def _marked(process: int) -> str:
    """Return the program whose mark is in the environment of a process; empty if none is."""
    mark = f"{MARK}=".encode()
    with contextlib.suppress(OSError):  # it has just ended
        for one in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
            if one.startswith(mark):
                return one.removeprefix(mark).decode(errors="replace")
    return ""

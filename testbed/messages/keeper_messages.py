"""Messages between the orchestrator and a device's keeper, which starts the programs of users there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from testbed.messages.codec import MessageCodec


@dataclass(frozen=True, slots=True)
class StartProgram:
    """Start a program.

    Attributes:
        command: the program to execute, and its arguments.
        ready: the sign that it is ready: ``tcp`` (a port), ``output`` (a pattern), ``file`` (a path) or
            ``command`` (a program and its arguments), and ``within`` (seconds); empty: it is at once.
        measure: ``pattern`` or ``file``, from which measurements are read; empty: none are.
    """

    program: str
    command: Sequence[str]
    environment: Mapping[str, str]
    ready: Mapping[str, Any]
    measure: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EndPrograms:
    """Ask all processes of the device to end (SIGTERM); kill the rest ``patience`` seconds later."""

    patience: float


KeeperRequest: TypeAlias = StartProgram | EndPrograms
KEEPER_REQUESTS: MessageCodec[KeeperRequest] = MessageCodec(get_args(KeeperRequest))


@dataclass(frozen=True, slots=True)
class ProgramReady:
    """A program is ready: what waits for it may start."""

    program: str


@dataclass(frozen=True, slots=True)
class ProgramUnready:
    """A program was not ready in time.

    Attributes:
        why: the rest of a sentence that begins with the program's name.
    """

    program: str
    why: str


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """A program has ended.

    Attributes:
        status: its exit status; −n for a signal n.
        lines: the last lines of its output.
        left: the number of processes that it had left in the background, and that were killed.
    """

    program: str
    status: int
    lines: Sequence[str]
    left: int


@dataclass(frozen=True, slots=True)
class ProgramMeasured:
    """A program has told of measured values.

    Attributes:
        when: in seconds of CLOCK_MONOTONIC.
        values: the values by their names.
    """

    program: str
    when: float
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProgramWarned:
    """Something went wrong with a program that goes on; ``text`` begins a sentence after its name."""

    program: str
    text: str


@dataclass(frozen=True, slots=True)
class PortsOpened:
    """A program listens on TCP ports, or receives at UDP ports, that it did not have before."""

    program: str
    tcp: Sequence[int]
    udp: Sequence[int]


KeeperReport: TypeAlias = (
    ProgramReady | ProgramUnready | ProgramEnded | ProgramMeasured | ProgramWarned | PortsOpened
)
KEEPER_REPORTS: MessageCodec[KeeperReport] = MessageCodec(get_args(KeeperReport), checked=True)

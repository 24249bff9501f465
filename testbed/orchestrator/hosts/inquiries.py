"""Questions that a host answers before a run begins on it, and their answers.

They are about its clocks, about what the doctor finds there or killed runs have left, and about the
network between it and another host. Question and answer are a frame each, of a kind of their own;
``host_paths`` answers.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, get_args

from testbed import number_text as q
from testbed.channel import InvalidMessageError, ReceivedMessage, parsed
from testbed.messages.codec import MessageCodec, encode
from testbed.orchestrator.hosts.relay import CONTROL, FrameKind
from testbed.orchestrator.hosts.secured_connection import (
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
)

LARGEST_OFFSET = 0.005
"""Seconds that clocks may differ, or be uncertain, without a remark."""
EXCHANGES = 8
"""The number of times that a clock is asked for; the answer that came first counts."""


@dataclass(frozen=True, slots=True)
class ReadClock:
    """Read the clocks now."""


@dataclass(frozen=True, slots=True)
class ClockRead:
    """The clocks' seconds: CLOCK_MONOTONIC, by which times are recorded, and CLOCK_REALTIME."""

    monotonic: float
    system: float


@dataclass(frozen=True, slots=True)
class ExamineHost:
    """Say what ``testbed doctor`` finds there."""


@dataclass(frozen=True, slots=True)
class HostExamined:
    """The findings: the fields of each ``doctor.findings.Finding``."""

    findings: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class CleanHost:
    """Remove what killed runs left there."""


@dataclass(frozen=True, slots=True)
class HostCleaned:
    """The leftovers of killed runs: the fields of each ``doctor.findings.Leftover``."""

    leftovers: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class OpenPath:
    """Let another host measure the way to an address of this one, once."""

    address: str


@dataclass(frozen=True, slots=True)
class PathOpened:
    """It waits on this TCP port."""

    port: int


@dataclass(frozen=True, slots=True)
class MeasurePath:
    """Measure the way to a host that waits for it; see ``host_paths.measured``.

    Attributes:
        source: the address of the host that measures.
        address, port: of the other host, as ``PathOpened`` says.
        seconds: for which each direction is filled, and datagrams are sent; 0 to measure no rates.
        tunnels: the UDP port of the tunnels.
    """

    source: str
    address: str
    port: int
    seconds: float
    tunnels: int


@dataclass(frozen=True, slots=True)
class PathMeasured:
    """The way from one host to another and back.

    Attributes:
        round_trip: the shortest round trip of TCP, from kernel to kernel, in seconds.
        mtu: bytes of the longest packet that the kernel sends that way.
        there, back: bit/s of a TCP connection with full packets; None if they were not measured.
        retransmitted: packets that the measuring host has sent again.
        clock_behind: CLOCK_REALTIME of the measuring host less that of the other, in seconds.
        clock_error: the most seconds by which ``clock_behind`` may be wrong.
        datagrams: what UDP has passed there and back, each with the fields of
            ``path_datagrams.DatagramsPassed``; empty if it was not measured.
    """

    round_trip: float
    mtu: int
    there: float | None
    back: float | None
    retransmitted: int
    clock_behind: float
    clock_error: float
    datagrams: Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class FillPath:
    """Take everything that comes after the answer, without frames, and then send as long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class PathFilled:
    """It is ready for that."""


@dataclass(frozen=True, slots=True)
class ExchangeDatagrams:
    """Receive datagrams until ``DatagramsSent`` comes, and then send some; see ``path_datagrams``.

    Attributes:
        port: where they are to be received, if no tunnels have it.
        back_to: the port to send to.
        token: in hexadecimal digits, with which all begin.
        back: bit/s of TCP on the way back.
        seconds: for which to send.
    """

    port: int
    back_to: int
    token: str
    back: float
    seconds: float


@dataclass(frozen=True, slots=True)
class DatagramsExpected:
    """They are received at this UDP port."""

    port: int


@dataclass(frozen=True, slots=True)
class DatagramsSent:
    """The number of full ones, and the seconds that sending them took."""

    sent: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DatagramsExchanged:
    """The same of those sent back; and the numbers of full and short ones that arrived before."""

    sent: int
    seconds: float
    arrived: int
    short_arrived: int


@dataclass(frozen=True, slots=True)
class FindPaths:
    """Say which of these paths the host does not have."""

    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class PathsMissing:
    """Those that it does not have."""

    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReadDataset:
    """Say which data the host has by the name or the path of a dataset."""

    dataset: str


@dataclass(frozen=True, slots=True)
class DatasetRead:
    """Its ``learning.data.catalogue.fingerprint`` there."""

    fingerprint: str


@dataclass(frozen=True, slots=True)
class FindRoom:
    """Say whether the host has room for devices; see ``doctor.requirements.check_room_of``."""

    devices: int
    shared_memory: int
    memory_per_device: float


@dataclass(frozen=True, slots=True)
class RoomFound:
    """It has."""


@dataclass(frozen=True, slots=True)
class InquiryRefused:
    """The host cannot answer; ``reason`` says why."""

    reason: str


Inquiry: TypeAlias = (
    ReadClock
    | ExamineHost
    | CleanHost
    | OpenPath
    | MeasurePath
    | FillPath
    | ExchangeDatagrams
    | FindPaths
    | ReadDataset
    | FindRoom
)
Answer: TypeAlias = (
    ClockRead
    | HostExamined
    | HostCleaned
    | PathOpened
    | PathFilled
    | PathMeasured
    | DatagramsExpected
    | DatagramsSent
    | DatagramsExchanged
    | PathsMissing
    | DatasetRead
    | RoomFound
    | InquiryRefused
)
INQUIRIES: MessageCodec[Inquiry] = MessageCodec(get_args(Inquiry), checked=True)
_ANSWERS: MessageCodec[Answer] = MessageCodec(get_args(Answer), checked=True)
A = TypeVar("A", bound=Answer)


@dataclass(frozen=True, slots=True)
class HostClock:
    """The differences between this host's clocks and another's: this host's less the other's.

    Attributes:
        behind: of CLOCK_MONOTONIC, in seconds; on most hosts it counts from their start.
        system: of CLOCK_REALTIME, in seconds.
        error: the most seconds by which either may be wrong: half a round trip.
    """

    behind: float
    system: float
    error: float

    @classmethod
    def of(cls, connection: SecuredConnection) -> "HostClock":
        """Ask the other side of a connection for its clocks ``EXCHANGES`` times, and take the best.

        Raises:
            ConnectionLostError: the connection has ended.
        """
        return min((cls._exchanged(connection) for _ in range(EXCHANGES)), key=lambda it: it.error)

    def remarks(self, host: str, end: "HostClock | None") -> Iterator[str]:
        """Yield warnings on the clocks of a host.

        Args:
            end: the same at the end of the run; None if it could not be measured.
        """
        times = [self, end] if end else [self]
        worst = max(times, key=lambda it: abs(it.system) - it.error)
        if abs(worst.system) - worst.error > LARGEST_OFFSET:
            side = "behind" if worst.system > 0 else "ahead of"
            yield (
                f"the system clock of host {host} is {q.as_milliseconds(abs(worst.system))} {side} "
                f"this host's, ± {q.as_milliseconds(worst.error)}: set both by NTP or PTP"
            )
        uncertain = max(it.error for it in times) + (abs(end.behind - self.behind) if end else 0.0)
        if uncertain > LARGEST_OFFSET:
            yield (
                f"times that host {host} has recorded are known within "
                f"± {q.as_milliseconds(uncertain)} only"
            )

    @classmethod
    def _exchanged(cls, connection: SecuredConnection) -> "HostClock":
        asked, system = time.monotonic(), time.time()
        read = ask(connection, ReadClock(), ClockRead)
        half = (time.monotonic() - asked) / 2
        return cls(asked + half - read.monotonic, system + half - read.system, half)


def ask(connection: SecuredConnection, inquiry: Inquiry, answer: type[A]) -> A:
    """Send an inquiry, and wait for its answer.

    Raises:
        ConnectionLostError: the connection has ended, or the other side cannot answer that.
    """
    send_inquiry(connection, inquiry)
    return awaited(connection, answer)


def awaited(connection: SecuredConnection, answer: type[A]) -> A:
    """Wait for an answer.

    Raises:
        ConnectionLostError: see ``ask``.
    """
    frames: list[HostFrame] = []
    while not frames:
        frames += connection.receive()
    try:
        found = _ANSWERS.decode(ReceivedMessage(*parsed(frames[0].content)))
    except InvalidMessageError as error:
        raise ConnectionLostError(f"it has answered with {error}") from error
    if isinstance(found, InquiryRefused):
        raise ConnectionLostError(found.reason)
    if not isinstance(found, answer):
        raise ConnectionLostError("it has answered something else than what was asked")
    return found


def send_inquiry(connection: SecuredConnection, message: Inquiry | Answer) -> None:
    """Send an inquiry or an answer.

    Raises:
        ConnectionLostError: the connection has ended.
    """
    fields, _ = encode(message)
    connection.send(FrameKind.INQUIRY, CONTROL, json.dumps(fields).encode())

"""Measure the way between two hosts by a TCP connection, and answer the inquiries of another host.

A way is measured between the addresses of the underlay, on a connection of its own: the links of a run
go that way, and the agents may talk over another. First the clocks are exchanged, while nothing else is
on the way, so that the kernel's shortest round trip is that of an empty network. Then, if it is wanted,
each side sends as much as it can, for a second or two; the receiver leaves out what came while TCP was
still finding its speed. At last datagrams are exchanged as ``path_datagrams`` says.
"""

import contextlib
import errno
import os
import socket
import struct
import time
from dataclasses import asdict, replace
from pathlib import Path

from testbed.channel import InvalidMessageError, ReceivedMessage, parsed
from testbed.doctor.attempts import make_tunnel, try_in_child
from testbed.doctor.cleaning import clean
from testbed.doctor.examination import examine
from testbed.doctor.findings import Finding
from testbed.doctor.requirements import check_room_of
from testbed.errors import HostError, TestbedError
from testbed.learning.data import catalogue
from testbed.orchestrator.hosts.inquiries import (
    INQUIRIES,
    CleanHost,
    ClockRead,
    DatasetRead,
    ExamineHost,
    ExchangeDatagrams,
    FillPath,
    FindPaths,
    FindRoom,
    HostCleaned,
    HostClock,
    HostExamined,
    InquiryRefused,
    MeasurePath,
    OpenPath,
    PathFilled,
    PathMeasured,
    PathOpened,
    PathsMissing,
    ReadClock,
    ReadDataset,
    RoomFound,
    ask,
    send_inquiry,
)
from testbed.orchestrator.hosts.path_datagrams import DatagramsPassed, exchange, exchanged
from testbed.orchestrator.hosts.relay import FrameKind
from testbed.orchestrator.hosts.secured_connection import (
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
)
from testbed.roles.transport.kernel_queues import shortest_round_trip

PATIENCE = 10.0
"""Seconds in which the other host must call or answer."""
MOST_SECONDS = 5.0
"""The longest that one direction is filled."""
_MOST_BYTES = 1 << 30
"""The most bytes that are sent in one direction."""
_PART, _END = bytes(1 << 17), b"\1"
_STARTING = 0.3
"""The part of the time in which TCP finds its speed, which is left out."""
_RATE = struct.Struct("!d")
_INFO = struct.Struct("60xI36xI")
"""Reads two fields of the kernel's struct tcp_info: tcpi_pmtu and tcpi_total_retrans."""


def measured(way: MeasurePath, secret: bytes) -> PathMeasured:
    """Measure the way to a host that waits for it.

    Raises:
        ConnectionLostError: there is no such way.
    """
    source, address, port, seconds = way.source, way.address, way.port, way.seconds
    try:
        connection = socket.create_connection((address, port), PATIENCE, (source, 0))
    except OSError as error:
        raise ConnectionLostError(
            f"no TCP connection from {source} to {address}:{port} ({error.strerror or error})"
        ) from error
    with connection:
        secured = SecuredConnection.proven(connection, secret, calls=True, seconds=PATIENCE)
        clock = HostClock.of(secured)
        trip = shortest_round_trip(connection)
        there = back = None
        passed: list[DatagramsPassed] = []
        if seconds:
            ask(secured, FillPath(seconds), PathFilled)
            there, back = _filled(connection, seconds)
            try:
                passed = exchanged(secured, way.tunnels, there, back, seconds)
            except OSError as error:
                raise ConnectionLostError(f"UDP port {way.tunnels}: {error.strerror}") from error
        mtu, retransmitted = _INFO.unpack(
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        )
    shortest = 2 * clock.error if trip is None else trip
    return PathMeasured(
        *(shortest, mtu, there, back, retransmitted, clock.system, clock.error),
        [asdict(one) for one in passed],
    )


def answer(connection: SecuredConnection, frame: HostFrame, secret: bytes) -> None:
    """Answer an inquiry that came over a connection.

    Raises:
        ConnectionLostError: it is none, or the connection has ended.
    """
    try:
        if frame.kind != FrameKind.INQUIRY:
            raise InvalidMessageError("something else than an inquiry")
        inquiry = INQUIRIES.decode(ReceivedMessage(*parsed(frame.content)))
    except InvalidMessageError as error:
        raise ConnectionLostError(f"it has sent {error}") from error
    try:
        match inquiry:
            case OpenPath(address):
                with socket.create_server((address, 0)) as listener:
                    send_inquiry(connection, PathOpened(listener.getsockname()[1]))
                    _let_measure(listener, secret)
            case MeasurePath():
                way = replace(inquiry, seconds=min(inquiry.seconds, MOST_SECONDS))
                try:
                    found = measured(way, secret)
                except ConnectionLostError as error:
                    raise HostError(str(error)) from error  # that is not this connection
                send_inquiry(connection, found)
            case FillPath(seconds):
                send_inquiry(connection, PathFilled())
                _fill_back(connection.socket, min(seconds, MOST_SECONDS))
            case ExchangeDatagrams():
                exchange(connection, inquiry, min(inquiry.seconds, MOST_SECONDS))
            case _:
                send_inquiry(connection, _of_this_host(inquiry))
    except (TestbedError, OSError) as error:
        send_inquiry(connection, InquiryRefused(str(error)))


def _of_this_host(
    inquiry: ReadClock | ExamineHost | CleanHost | FindPaths | ReadDataset | FindRoom,
) -> ClockRead | HostExamined | HostCleaned | PathsMissing | DatasetRead | RoomFound:
    """Answer an inquiry about what this host has.

    Raises:
        TestbedError: it has not.
    """
    match inquiry:
        case ReadClock():
            return ClockRead(time.monotonic(), time.time())
        case ExamineHost():
            return HostExamined([asdict(finding) for finding in examined_here()])
        case CleanHost():
            return HostCleaned([asdict(one) for one in clean()])
        case FindPaths(paths):
            return PathsMissing([path for path in paths if not Path(path).exists()])
        case ReadDataset(dataset):
            return DatasetRead(catalogue.fingerprint(dataset))
        case FindRoom(devices, shared_memory, memory_per_device):
            check_room_of(devices, shared_memory, memory_per_device)
            return RoomFound()


def examined_here() -> list[Finding]:
    """Return what the doctor finds on this host, with what only runs over several hosts need."""
    found = [*examine()]
    if os.geteuid() != 0:
        remedy = "do it as root"
        found.append(Finding("rights", "missing", "links between hosts need root", remedy))
    problem = try_in_child(make_tunnel)
    remedy = "load it (modprobe vxlan), or use a kernel built with it"
    found.append(
        Finding("tunnels", "missing", f"no VXLAN interface can be made: {problem}", remedy)
        if problem
        else Finding("tunnels", "ok", "VXLAN, for links between hosts")
    )
    return found


def _let_measure(listener: socket.socket, secret: bytes) -> None:
    """Answer the host that measures the way; return when it has ended, or has not come in time.

    Who does not know the secret is turned away, and the host may still come.
    """
    deadline = time.monotonic() + PATIENCE
    while (left := deadline - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            called, _ = listener.accept()
        except TimeoutError:
            return
        with called, contextlib.suppress(ConnectionLostError):
            secured = SecuredConnection.proven(called, secret, calls=False, seconds=left)
            deadline = 0.0  # it has come
            while True:
                for frame in secured.receive():
                    answer(secured, frame, secret)


def _filled(connection: socket.socket, seconds: float) -> tuple[float, float]:
    """Send for some seconds, then receive as long; return the rates that the receivers have seen."""
    connection.settimeout(PATIENCE + seconds)
    try:
        _send_for(connection, seconds)
        head = b""
        while len(head) < _RATE.size:
            if not (part := connection.recv(_RATE.size - len(head))):
                raise ConnectionLostError("it has ended the connection")
            head += part
        return _RATE.unpack(head)[0], _received(connection, seconds)
    except OSError as error:
        raise ConnectionLostError(
            f"full packets do not arrive ({error.strerror or error}): is an MTU on the way less than "
            "the hosts'?"
        ) from error


def _fill_back(connection: socket.socket, seconds: float) -> None:
    connection.settimeout(PATIENCE + seconds)
    connection.sendall(_RATE.pack(_received(connection, seconds)))
    _send_for(connection, seconds)


def _send_for(connection: socket.socket, seconds: float) -> None:
    until, left = time.monotonic() + seconds, _MOST_BYTES
    while time.monotonic() < until and left > 0:
        connection.sendall(_PART)
        left -= len(_PART)
    connection.sendall(_END)


def _received(connection: socket.socket, seconds: float) -> float:
    """Receive until the other side has sent all; return the bit/s after the starting time, or of all.

    Raises:
        OSError: it has ended the connection.
    """
    buffer, count, began = bytearray(1 << 18), 0, 0.0
    settled: tuple[float, int] | None = None
    first = size = 0
    while not size or buffer[size - 1] != _END[0]:
        if not (size := connection.recv_into(buffer)):
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        now = time.monotonic()
        if not count:
            began, first = now, size
        count += size
        if settled is None and now - began > _STARTING * seconds:
            settled = now, count
    now = time.monotonic()
    since, before = settled if settled and count > settled[1] else (began, first)
    return 8 * (count - before) / max(now - since, 1e-9) if count > before else 0.0

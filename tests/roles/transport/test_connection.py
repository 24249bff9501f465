"""A connection over a real socket: the bytes that it has received, its mark, and its end."""

import select
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from testbed.roles.transport import endpoint
from testbed.roles.transport.connection import Connection
from testbed.wire.frames import HEADER, Kind, Receiver, header

BODY = 300_000


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, (address, port) = listener.accept()
    ours.setblocking(False)
    scratch = memoryview(bytearray(BODY + 4096))
    receiver = Receiver({Kind.PUSH: BODY, Kind.PULL: 0}, scratch)
    with ours, theirs:
        yield Connection(ours, address, port, receiver, time.monotonic()), theirs


def test_read_out_counts_what_has_arrived(ends: tuple[Connection, socket.socket]) -> None:
    connection, theirs = ends
    sent = [header(Kind.PUSH, 3, length=BODY), bytes(BODY), header(Kind.PULL, 3)]
    whole, part = sum(map(len, sent)), HEADER.size + 1_000
    theirs.sendall(b"".join(sent) + header(Kind.PUSH, 4, length=BODY) + bytes(1_000))
    deadline = time.monotonic() + 30
    while connection.received_bytes + connection.receiver.incomplete < whole + part:
        assert time.monotonic() < deadline
        connection.read_out()
    assert connection.received_bytes == whole
    assert connection.receiver.incomplete == part
    assert connection.payload_bytes == BODY


def test_read_out_without_bytes_or_from_a_closed_peer_is_no_error(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = ends
    connection.read_out()
    theirs.close()
    connection.read_out()
    assert connection.received_bytes == 0


def _segments_sent(connection: socket.socket) -> int:
    """Return the number of segments that a connection has sent (tcpi_segs_out)."""
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 144)
    return int(struct.unpack_from("=I", information, 136)[0])


def test_the_last_message_and_the_end_are_one_segment(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = ends
    connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    before, last = _segments_sent(connection.socket), header(Kind.STOP)
    connection.end(last)
    assert theirs.recv(100, socket.MSG_WAITALL) == last  # and then the end of the stream
    assert _segments_sent(connection.socket) == before + 1
    assert connection.sent_bytes == len(last)


def _readable(connection: Connection, seconds: float = 0.0) -> bool:
    return bool(select.select([connection.socket], [], [], seconds)[0])


def test_a_marked_connection_is_readable_when_a_whole_message_is_there(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = ends
    message = header(Kind.PUSH, 3, length=1_000) + bytes(1_000)
    for _ in range(2):
        connection.wake_at(len(message))
        theirs.sendall(message[:-1])
        assert not _readable(connection, 0.05)
        theirs.sendall(message[-1:])
        assert _readable(connection, 10)
        assert [frame.kind for frame in connection.receive()] == [Kind.PUSH]
    theirs.sendall(b"T")  # the mark held until the read
    assert _readable(connection, 10)


def test_a_mark_is_taken_away_when_nothing_has_come_since_it_was_looked_at(
    ends: tuple[Connection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, _ = ends
    monkeypatch.setattr(endpoint, "STALLED", 0.05)
    for _ in range(2):
        connection.wake_at(2_000)
        connection.wake_if_stalled()
        assert connection.has_mark
        time.sleep(0.1)
        connection.wake_if_stalled()
        assert not connection.has_mark


def test_a_message_that_stalls_below_the_mark_is_read(
    ends: tuple[Connection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, theirs = ends
    monkeypatch.setattr(endpoint, "STALLED", 0.05)
    connection.wake_at(2_000)
    connection.wake_if_stalled()
    theirs.sendall(bytes(10))
    deadline = time.monotonic() + 10
    while not _readable(connection, 0.01):
        connection.wake_if_stalled()
        assert time.monotonic() < deadline

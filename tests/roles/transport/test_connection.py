"""A connection's ledger: the bytes that it has received, over a real socket."""

import socket
import time
from collections.abc import Iterator

import pytest

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

"""Connections between hosts: who knows the secret is heard, and nobody else can say anything."""

import random
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from testbed.orchestrator.hosts.secured_connection import (
    LARGEST,
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
)

SECRET = b"0123456789abcdef"
Ends = tuple[SecuredConnection, SecuredConnection]


def connected() -> tuple[socket.socket, socket.socket]:
    """Return the ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        return caller, listener.accept()[0]


def proven(secret: bytes, other: bytes) -> tuple[SecuredConnection | str, SecuredConnection | str]:
    """Return both ends after the proofs, or what was wrong."""
    caller, called = connected()
    found: dict[bool, SecuredConnection | str] = {}

    def prove(end: socket.socket, own: bytes, calls: bool) -> None:
        try:
            found[calls] = SecuredConnection.proven(end, own, calls=calls, seconds=5)
        except ConnectionLostError as error:
            end.close()
            found[calls] = str(error)

    thread = threading.Thread(target=prove, args=(called, other, False))
    thread.start()
    prove(caller, secret, True)
    thread.join()
    return found[True], found[False]


@pytest.fixture
def ends() -> Iterator[Ends]:
    caller, called = proven(SECRET, SECRET)
    assert isinstance(caller, SecuredConnection)
    assert isinstance(called, SecuredConnection)
    yield caller, called
    for one in (caller, called):
        one.socket.close()


def test_frames_arrive_as_they_were_sent_in_both_directions(ends: Ends) -> None:
    sent = [HostFrame(1, number, bytes(number)) for number in range(200)]
    for here, there in (ends, ends[::-1]):
        for one in sent:
            here.send(one.kind, one.channel, one.content)
        received: list[HostFrame] = []
        while len(received) < len(sent):
            received += there.receive()
        assert received == sent


def test_another_secret_is_refused_by_both() -> None:
    caller, called = proven(SECRET, b"another secret..")
    assert "the secrets may differ" in str(caller)
    assert called == "it does not know the secret"


def test_what_is_no_agent_is_refused() -> None:
    caller, called = connected()
    called.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))
    with pytest.raises(ConnectionLostError, match="no agent of this version"):
        SecuredConnection.proven(caller, SECRET, calls=True, seconds=5)
    called.close()


def test_one_who_says_nothing_is_not_waited_for() -> None:
    caller, called = connected()
    with pytest.raises(ConnectionLostError, match="not answered within"):
        SecuredConnection.proven(called, SECRET, calls=False, seconds=0.2)
    caller.close()


def flipped(data: bytes) -> bytes:
    place = random.Random(1).randrange(9, len(data))
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


@pytest.mark.parametrize(
    "attack",
    [
        flipped,
        lambda data: data + data,
        lambda data: data[: len(data) // 2] + bytes(len(data)),
        lambda data: b"\1\0\0\0\0\xff\xff\xff\xff" + data,
    ],
    ids=["changed", "repeated", "cut", "longer than memory"],
)
def test_what_the_other_side_has_not_sent_ends_the_connection(
    ends: Ends, attack: Callable[[bytes], bytes]
) -> None:
    caller, called = ends
    caller.socket.sendall(attack(caller.packed(1, 2, b"an order" * 10)))
    caller.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLostError, match=r"has not sent|bytes came|ended the connection"):
        while True:
            for frame in called.receive():
                assert frame == HostFrame(1, 2, b"an order" * 10)
    assert LARGEST < 0xFFFFFFFF


def test_what_one_side_has_sent_cannot_be_sent_back_to_it(ends: Ends) -> None:
    caller, called = ends
    called.socket.sendall(caller.packed(1, 2, b"an order"))
    with pytest.raises(ConnectionLostError, match="has not sent"):
        caller.receive()


def test_random_bytes_never_come_through() -> None:
    """At any point of a connection: before the proofs, and after them."""
    draw = random.Random(41)
    for _ in range(300):
        caller, called = connected()
        with caller, called:
            caller.sendall(draw.randbytes(draw.randrange(200)))
            caller.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionLostError):
                SecuredConnection.proven(called, SECRET, calls=False, seconds=5)
    for _ in range(60):
        near, far = proven(SECRET, SECRET)
        assert isinstance(near, SecuredConnection)
        assert isinstance(far, SecuredConnection)
        with near.socket, far.socket:
            near.socket.sendall(draw.randbytes(draw.randrange(1, 300)))
            near.socket.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionLostError):
                while True:
                    assert far.receive() == []

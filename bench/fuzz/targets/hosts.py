"""Connections between hosts: ``SecuredConnection`` may raise ``ConnectionLostError``.

An attacker changes the frames that one side has sent. It sends the mutant twice: in place of the
frames, where only those that were sent may come through, in their order; and to an agent to which it
has proven nothing, and which has to refuse it.
"""

import contextlib
import socket
from collections.abc import Iterator, Sequence

from testbed.orchestrator.hosts.secured_connection import (
    _HELLO,
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
    _Way,
)

_KEYS = b"1" * 32, b"2" * 32
_SENT = [
    HostFrame(1, 0, b"{}"),
    HostFrame(2, 7, b""),
    HostFrame(2, 300, bytes(range(200))),
    HostFrame(3, 1, b"end"),
]
TOKENS = (
    *(
        _HELLO,
        bytes(32),
        b"\xff" * 32,
        b"\0\0\0\2",
        b"\xff" * 4,
        b"\x0f\xff\xff\xff",
        b"\x10\0\0\1",
    ),
    *(b"\x16\3\1\2\0", b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n"),
)


@contextlib.contextmanager
def _receiving(data: bytes) -> Iterator[socket.socket]:
    """Yield the end of a connection over which some bytes come, and its end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        attacker = socket.create_connection(listener.getsockname())
        own, _ = listener.accept()
    with attacker, own:
        attacker.sendall(data)
        attacker.shutdown(socket.SHUT_WR)
        yield own


def corpus() -> Sequence[bytes]:
    """Return the frames that one side sent."""
    with socket.socket() as unused:
        sender = SecuredConnection(unused, _Way(_KEYS[0]), _Way(_KEYS[1]))
        return [b"".join(sender.packed(each.kind, each.channel, each.content) for each in _SENT)]


def check(data: bytes) -> bool:
    """Receive what an attacker has sent; return False if the connection ended before the last frame."""
    with _receiving(_HELLO + bytes(32) + data) as own:
        try:
            SecuredConnection.proven(own, b"0123456789abcdef", calls=False, seconds=1.0)
        except ConnectionLostError:
            pass
        else:
            raise AssertionError("a stranger has proven what it does not know")
    found: list[HostFrame] = []
    with _receiving(data) as own:
        connection = SecuredConnection(own, _Way(_KEYS[1]), _Way(_KEYS[0]))
        try:
            while True:
                found += connection.receive()
        except ConnectionLostError:
            assert found == _SENT[: len(found)]
    return len(found) == len(_SENT)

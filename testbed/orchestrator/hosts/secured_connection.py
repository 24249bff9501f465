"""A TCP connection between two hosts of a run, of which both ends know the same secret.

The secret never crosses the network. Each side sends a challenge; both derive the keys of the
connection from the secret and both challenges, and prove with an HMAC that they have them. From then
on every frame ends with an HMAC over its number, its header and its content, with one key for each
direction: what an attacker inserts, changes, repeats, leaves out or turns around ends the connection.
Nothing is encrypted.

A frame has a kind, the number of a channel (see ``relay``), and bytes, whose length is checked before
they are read.
"""

import hashlib
import hmac
import secrets
import socket as net
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from socket import (
    IPPROTO_TCP,
    SO_KEEPALIVE,
    SOL_SOCKET,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_NODELAY,
    TCP_USER_TIMEOUT,
)
from typing import Self

from testbed.errors import TestbedError

LARGEST = 256 << 20
"""The most bytes of a frame's content: the settings of a run are the longest, some MB."""
SHORTEST_SECRET = 16
"""The least characters of a secret."""
_HELLO = b"testbed agent 1\n"
"""What each side says first; the number is that of the protocol."""
_CHALLENGE = 32
_HEAD = struct.Struct("!BII")
_NUMBER = struct.Struct("!Q")
_MAC = 16
_LOST_AFTER = 20_000
"""Milliseconds without an acknowledgement after which the kernel gives the other host up."""


class ConnectionLostError(TestbedError):
    """The connection has ended, or what came over it is not from the other side."""


@dataclass(frozen=True, slots=True)
class HostFrame:
    """What came in one piece.

    Attributes:
        kind: what it is; ``relay`` says which there are.
        channel: the number of the channel that it is for.
    """

    kind: int
    channel: int
    content: bytes


@dataclass(slots=True)
class _Way:
    """One direction of a connection: its key, and the number of its next frame."""

    key: bytes
    number: int = 0

    def mac(self, head: bytes, content: bytes) -> bytes:
        """Return the HMAC of the next frame."""
        text = b"".join((_NUMBER.pack(self.number), head, content))
        self.number += 1
        return hmac.digest(self.key, text, hashlib.sha256)[:_MAC]


@dataclass(slots=True)
class SecuredConnection:
    """One end of a connection; see ``proven``.

    Attributes:
        socket: of the connection; it blocks.
        unsent: what ``flush`` has to send.
    """

    socket: "net.socket"
    _sent: _Way
    _received: _Way
    _rest: bytearray = field(default_factory=bytearray)
    unsent: deque[memoryview] = field(default_factory=deque)

    @classmethod
    def proven(
        cls, connection: "net.socket", secret: bytes, *, calls: bool, seconds: float
    ) -> Self:
        """Prove to the other side of a new connection that this side knows the secret, and vice versa.

        Args:
            calls: True for the side that has called the other.
            seconds: that it may take.

        Raises:
            ConnectionLostError: the other side does not know the secret, speaks another protocol, or
                has not answered in time.
        """
        deadline = time.monotonic() + seconds
        connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        try:
            own = secrets.token_bytes(_CHALLENGE)
            _send_before(connection, _HELLO + own, deadline)
            said = _receive_before(connection, len(_HELLO) + _CHALLENGE, deadline)
            if said[: len(_HELLO)] != _HELLO:
                raise ConnectionLostError("it is no agent of this version of the testbed")
            theirs = said[len(_HELLO) :]
            both = own + theirs if calls else theirs + own
            key = hmac.digest(secret, b"keys" + both, hashlib.sha256)
            caller, called = (
                hmac.digest(key, side, hashlib.sha256) for side in (b"caller", b"called")
            )
            mine, other = (caller, called) if calls else (called, caller)
            # The side that was called proves nothing to one that has proven nothing.
            if calls:
                _send_before(connection, _proof(mine), deadline)
            if not hmac.compare_digest(
                _receive_before(connection, _CHALLENGE, deadline), _proof(other)
            ):
                raise ConnectionLostError("it does not know the secret")
            if not calls:
                _send_before(connection, _proof(mine), deadline)
        except TimeoutError:
            raise ConnectionLostError(f"it has not answered within {seconds:g} s") from None
        except OSError as error:
            raise ConnectionLostError(f"the connection has ended ({error.strerror})") from error
        connection.settimeout(None)
        end_when_silent(connection)
        return cls(connection, _Way(mine), _Way(other))

    def packed(self, kind: int, channel: int, content: bytes) -> bytes:
        """Return the bytes of the next frame to send; all must be sent, in this order."""
        head = _HEAD.pack(kind, channel, len(content))
        return b"".join((head, content, self._sent.mac(head, content)))

    def send(self, kind: int, channel: int, content: bytes) -> None:
        """Send a frame, and wait until it is on its way.

        Raises:
            ConnectionLostError: the connection has ended.
        """
        try:
            self.socket.sendall(self.packed(kind, channel, content))
        except OSError as error:
            raise ConnectionLostError(f"the connection has ended ({error.strerror})") from error

    def queue(self, kind: int, channel: int, content: bytes) -> None:
        """Have ``flush`` send a frame."""
        self.unsent.append(memoryview(self.packed(kind, channel, content)))

    def flush(self) -> None:
        """Send of the queued frames what there is room for, if the socket does not block.

        Raises:
            ConnectionLostError: the connection has ended.
        """
        try:
            while self.unsent:
                sent = self.socket.send(self.unsent[0], net.MSG_NOSIGNAL)
                self.unsent[0] = self.unsent[0][sent:]
                if not self.unsent[0]:
                    self.unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            raise ConnectionLostError(f"the connection has ended ({error.strerror})") from error

    def receive(self) -> list[HostFrame]:
        """Wait for bytes, and return the frames that are whole with them.

        Raises:
            ConnectionLostError: the connection has ended, or a frame is not the other side's.
        """
        try:
            data = self.socket.recv(1 << 18)
        except OSError as error:
            raise ConnectionLostError(f"the connection has ended ({error.strerror})") from error
        if not data:
            raise ConnectionLostError("it has ended the connection")
        self._rest += data
        return list(self._frames())

    def _frames(self) -> Iterator[HostFrame]:
        place = 0
        while len(self._rest) - place >= _HEAD.size:
            kind, channel, length = _HEAD.unpack_from(self._rest, place)
            if length > LARGEST:
                raise ConnectionLostError(f"a frame of {length:,} bytes came")
            begin, end = place + _HEAD.size, place + _HEAD.size + length
            if len(self._rest) < end + _MAC:
                break
            head, content = bytes(self._rest[place:begin]), bytes(self._rest[begin:end])
            mac = bytes(self._rest[end : end + _MAC])
            if not hmac.compare_digest(mac, self._received.mac(head, content)):
                raise ConnectionLostError("a frame came that it has not sent")
            place = end + _MAC
            yield HostFrame(kind, channel, content)
        del self._rest[:place]


def end_when_silent(connection: "net.socket") -> None:
    """Have the kernel end a connection when the other host has been silent for 20 s."""
    connection.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
    connection.setsockopt(IPPROTO_TCP, TCP_KEEPIDLE, _LOST_AFTER // 2000)
    connection.setsockopt(IPPROTO_TCP, TCP_KEEPINTVL, 2)
    connection.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, _LOST_AFTER)


def _proof(key: bytes) -> bytes:
    return hmac.digest(key, b"proof", hashlib.sha256)


def _send_before(connection: "net.socket", data: bytes, deadline: float) -> None:
    connection.settimeout(max(0.001, deadline - time.monotonic()))
    connection.sendall(data)


def _receive_before(connection: "net.socket", length: int, deadline: float) -> bytes:
    """Return as many bytes, all of which must have come by the deadline."""
    data = b""
    while len(data) < length:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionLostError("it has ended the connection: the secrets may differ")
        data += part
    return data

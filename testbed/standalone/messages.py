"""The messages between the server's admission port and a device: JSON objects, and proofs.

The secret that both were started with never crosses the network. Each side sends a challenge and
proves with an HMAC over both challenges that it knows the secret; the server's proof covers the
settings as well. The run's own secret, by which the parameter server recognises its devices, is
derived from it.

A message is its length, four bytes in network order, and as many bytes of JSON. After the report of a
further server come the raw bytes that it announces.
"""

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from typing import Any

from testbed.errors import RunError, SpecError

PORT = 7078
"""The port where the server admits devices; the parameter server's own port is one lower."""
CHALLENGE = 32
LARGEST = 1 << 20
"""The length of the longest message in bytes; settings take a few thousand."""
SHORTEST_SECRET = 16
_LENGTH = struct.Struct("!I")


class MessageError(Exception):
    """The other side sent an invalid message."""


def secret_of(environment: str | None) -> bytes:
    """Return the secret from the environment variable's value.

    Raises:
        SpecError: there is none, or it is too short.
    """
    secret = (environment or "").strip().encode()
    if len(secret) < SHORTEST_SECRET:
        raise SpecError(
            f"TESTBED_SECRET must hold a secret of {SHORTEST_SECRET} characters or more, the same for "
            "all roles: export TESTBED_SECRET=$(openssl rand -hex 32)"
        )
    return secret


def challenge() -> bytes:
    """Make a new challenge."""
    return secrets.token_bytes(CHALLENGE)


def challenge_of(text: object) -> bytes:
    """Return the challenge that was sent as ``text``.

    Raises:
        MessageError: it is not a challenge.
    """
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if len(found) != CHALLENGE:
        raise MessageError("a message without a challenge")
    return found


def device_proof(secret: bytes, servers: bytes, devices: bytes, role: str) -> str:
    """Return a device's proof that it knows the secret and asks for this role."""
    return _proof(secret, b"device", servers, devices, role.encode())


def server_proof(secret: bytes, servers: bytes, devices: bytes, body: str) -> str:
    """Return the server's proof that it knows the secret and has written ``body``."""
    return _proof(secret, b"server", servers, devices, body.encode())


def greeting_secret(secret: bytes, session: bytes) -> str:
    """Return the run's own secret, hexadecimal; the server draws a new ``session`` for each run."""
    return _proof(secret, b"greeting", session)


def _proof(secret: bytes, *parts: bytes) -> str:
    # Each part follows its length, so that no other parts give the same text.
    text = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return hmac.digest(secret, text, hashlib.sha256).hex()


def equal(proof: object, expected: str) -> bool:
    """Return True if a proof is the expected one, in a time that reveals nothing about it."""
    return isinstance(proof, str) and proof.isascii() and hmac.compare_digest(proof, expected)


def send(connection: socket.socket, **fields: object) -> None:
    """Send one message.

    Raises:
        OSError: the connection broke.
    """
    text = json.dumps(fields, separators=(",", ":")).encode()
    connection.sendall(_LENGTH.pack(len(text)) + text)


def receive(
    connection: socket.socket, largest: int = LARGEST, deadline: float | None = None
) -> dict[str, Any] | None:
    """Wait for the next message and return it, or None at the end of the stream.

    Args:
        largest: the greatest length of the message in bytes.
        deadline: when the whole message must have arrived, in seconds of CLOCK_MONOTONIC; None: each
            part of it must arrive within the connection's own timeout.

    Raises:
        MessageError: the message is longer than ``largest``, cut short, or not a JSON object.
        OSError: the connection broke or timed out.
    """
    head = _exactly(connection, _LENGTH.size, deadline)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > largest:
        raise MessageError(f"a message of {length:,} bytes, longer than {largest:,}")
    return parse(_exactly(connection, length, deadline))


def send_report(connection: socket.socket, fields: dict[str, Any], raw: bytes) -> None:
    """Send a report of a role as ``messages.codec`` encodes it.

    Raises:
        OSError: the connection broke.
    """
    send(connection, report=fields, bytes=len(raw))
    connection.sendall(raw)


def receive_raw(connection: socket.socket, count: object, largest: int) -> bytes:
    """Receive the raw bytes of a report.

    Args:
        count: their number, as the message announces it.
        largest: the greatest number that is accepted.

    Raises:
        MessageError: there are more, or fewer than announced.
        OSError: the connection broke.
    """
    if type(count) is not int or not 0 <= count <= largest:
        raise MessageError(f"a report whose raw bytes are not from 0 to {largest:,}")
    raw = _exactly(connection, count, None)
    if len(raw) < count:
        raise MessageError("a report that was cut short")
    return raw


def parse(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        MessageError: the text is not a JSON object.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError("a message that is not JSON") from error
    if not isinstance(fields, dict):
        raise MessageError("a message that is not a JSON object")
    return fields


def _exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    """Receive exactly ``count`` bytes, or none if the stream ends before the first of them."""
    received = bytearray()
    while len(received) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            connection.settimeout(left)
        part = connection.recv(min(count - len(received), 1 << 16))
        if not part:
            if received:
                raise MessageError("a message that was cut short")
            return b""
        received += part
    return bytes(received)


def lost(address: str, seconds: float, error: Exception) -> RunError:
    """Make the error for a server that cannot be reached."""
    return RunError(
        f"no server answered at {address}:{PORT} within {seconds:g} s ({error}): start one (python -m "
        "testbed.standalone server), or name another by --server"
    )

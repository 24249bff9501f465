"""What the server's admission port and a device say to each other: JSON objects, and proofs.

The secret that both were started with never crosses the network. Each side sends a challenge and
proves by an HMAC over both challenges that it knows the secret; the server's proof covers the settings
as well. The run's own secret, by which the parameter server knows its devices, is derived from it.

A message is its length, four bytes in network order, and as many bytes of JSON.
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
"""Where the server admits devices; the parameter server's own port is the one below."""
CHALLENGE = 32
LARGEST = 1 << 20
"""Bytes of the longest message; settings take a few thousand."""
SHORTEST_SECRET = 16
_LENGTH = struct.Struct("!I")


class MessageError(Exception):
    """What arrived is not what the other side may send."""


def secret_of(environment: str | None) -> bytes:
    """The secret from the environment variable's value.

    Raises:
        SpecError: there is none, or it is too short to be one.
    """
    secret = (environment or "").strip().encode()
    if len(secret) < SHORTEST_SECRET:
        raise SpecError(
            "TESTBED_SECRET must be the same secret for all roles, of "
            f"{SHORTEST_SECRET} characters or more: export TESTBED_SECRET=$(openssl rand -hex 32)"
        )
    return secret


def challenge() -> bytes:
    """A new challenge."""
    return secrets.token_bytes(CHALLENGE)


def challenge_of(text: object) -> bytes:
    """A challenge as it was sent.

    Raises:
        MessageError: it is not one.
    """
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if len(found) != CHALLENGE:
        raise MessageError("a message without a challenge")
    return found


def device_proof(secret: bytes, servers: bytes, devices: bytes, role: str) -> str:
    """A device's proof that it knows the secret and wants to be this role."""
    return _proof(secret, b"device", servers, devices, role.encode())


def server_proof(secret: bytes, servers: bytes, devices: bytes, body: str) -> str:
    """The server's proof that it knows the secret and has written this."""
    return _proof(secret, b"server", servers, devices, body.encode())


def greeting_secret(secret: bytes, session: bytes) -> str:
    """The run's own secret, hexadecimal; ``session`` is the server's, a new one for each run."""
    return _proof(secret, b"greeting", session)


def _proof(secret: bytes, *parts: bytes) -> str:
    # Lengths before them, so that no other parts make the same text.
    text = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return hmac.digest(secret, text, hashlib.sha256).hex()


def equal(one: object, other: str) -> bool:
    """Whether a proof is the expected one, in a time that tells nothing."""
    return isinstance(one, str) and one.isascii() and hmac.compare_digest(one, other)


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
    """Wait for the next message; None at the end of the stream.

    Args:
        largest: bytes that it may have.
        deadline: when the whole of it must be there, in seconds of CLOCK_MONOTONIC; None: each part of
            it within the connection's own timeout.

    Raises:
        MessageError: it is longer than ``largest``, cut short, or not a JSON object.
        OSError: the connection broke, or its time is over.
    """
    head = _exactly(connection, _LENGTH.size, deadline)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > largest:
        raise MessageError(f"a message of {length} bytes, over {largest}")
    return parse(_exactly(connection, length, deadline))


def parse(text: str | bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        MessageError: it is not one.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError("a message that is not JSON") from error
    if not isinstance(fields, dict):
        raise MessageError("a message that is not a JSON object")
    return fields


def _exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    """So many bytes, or none where the stream ends before the first of them."""
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
    """What to say when the server was not to be reached."""
    return RunError(
        f"no server admits devices at {address}:{PORT} within {seconds:g} s ({error}): start one "
        "(python -m testbed.standalone server), or name it by --server"
    )

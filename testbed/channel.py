"""Messages between the processes of one run on one host: JSON, raw bytes and descriptors.

Roles report to the orchestrator over such a channel, and the orchestrator, the agent and the fork
server talk over others. It is a Unix SOCK_SEQPACKET pair: messages stay whole, several processes
may write to the same end, and the reader sees the end of the stream when the last writer is gone.
It never leaves the host and never crosses the emulated network.
"""

import array
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LARGEST = 120_000
"""Largest message in bytes: well below the kernel's default send buffer of 212,992 bytes, its own
accounting included."""
MOST_DESCRIPTORS = 200
"""Descriptors that one message may carry; the kernel takes 253."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it was received.

    Attributes:
        fields: the JSON object.
        raw: the bytes that followed it.
        descriptors: received file descriptors, now owned by the receiver.
    """

    fields: dict[str, Any]
    raw: bytes = b""
    descriptors: Sequence[int] = field(default=())


class Channel:
    """One end of a channel."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple["Channel", "Channel"]:
        """Make both ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), cls(theirs)

    @classmethod
    def from_descriptor(cls, fd: int) -> "Channel":
        """Take over an end that was inherited as a file descriptor."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._socket.fileno()

    def send(
        self, fields: dict[str, Any], raw: bytes = b"", descriptors: Sequence[int] = ()
    ) -> None:
        """Send one message, waiting while the reader is behind.

        Raises:
            ValueError: the message is longer than ``LARGEST``.
            OSError: nobody reads the other end any more.
        """
        head = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        if len(head) + len(raw) > LARGEST:
            raise ValueError(f"a message of {len(head) + len(raw)} bytes is over {LARGEST}")
        ancillary = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            if descriptors
            else []
        )
        self._socket.sendmsg([head, raw], ancillary, socket.MSG_NOSIGNAL)

    def receive(self) -> Message | None:
        """Wait for the next message; None once every writer has closed its end."""
        item_size = array.array("i").itemsize
        ask = (
            LARGEST,
            socket.CMSG_SPACE(MOST_DESCRIPTORS * item_size),
            socket.MSG_CMSG_CLOEXEC,
        )
        try:
            data, ancillary, _, _ = self._socket.recvmsg(*ask)
        except ConnectionResetError:
            # The other end was closed with messages unread, which is told once. What it had sent
            # before is still to be read, and then comes the end.
            data, ancillary, _, _ = self._socket.recvmsg(*ask)
        if not data:
            return None
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content[: len(content) // item_size * item_size])
        head, _, raw = data.partition(b"\n")
        return Message(json.loads(head), raw, tuple(descriptors))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

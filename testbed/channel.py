"""Messages between the processes of one run on one host: JSON, raw bytes and descriptors.

Roles report to the orchestrator over such a channel, and the orchestrator, the agent and the fork
server talk over others. It is a Unix SOCK_SEQPACKET pair: messages stay whole, several processes
may write to the same end, and the reader sees the end of the stream when the last writer is gone.
It never leaves the host and never crosses the emulated network.

A message may be as long as memory allows. The kernel takes a packet only if it fits into a send buffer,
so a longer message stands in a sealed memory file, and its packet carries the file's descriptor. One
message is one packet in either case: messages of several writers cannot mix, and their order holds.
"""

import array
import contextlib
import errno
import fcntl
import json
import os
import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LARGEST = 7_000
"""Longest message in bytes that is sent as a packet of its own. Up to here the kernel finds room for it
in two adjacent pages; for packets of 104,000 bytes it wants more, and on a host whose memory a thousand
devices had broken up it found none (ENOBUFS). A memory file takes single pages."""
MOST_DESCRIPTORS = 200
"""Descriptors that one message may carry; the kernel takes 253."""
_IN_FILE = b"\0"
"""Packet of a message that stands in a memory file, the last of the packet's descriptors. No other
packet begins like this: they begin with JSON."""
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_ITEM_SIZE = array.array("i").itemsize
_ASK = (LARGEST, socket.CMSG_SPACE((MOST_DESCRIPTORS + 1) * _ITEM_SIZE), socket.MSG_CMSG_CLOEXEC)


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
        """Send one message of any length, waiting while the reader is behind.

        Raises:
            ValueError: more than ``MOST_DESCRIPTORS``.
            OSError: nobody reads the other end any more, or there is no memory for a long message.
        """
        if len(descriptors) > MOST_DESCRIPTORS:
            raise ValueError(f"{len(descriptors)} descriptors are over {MOST_DESCRIPTORS}")
        head = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        if len(head) + len(raw) <= LARGEST:
            self._send([head, raw], descriptors)
            return
        file = _sealed(head, raw)
        try:
            self._send([_IN_FILE], [*descriptors, file])
        finally:
            os.close(file)

    def _send(self, pieces: Sequence[bytes], descriptors: Sequence[int]) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        self._socket.sendmsg(pieces, [rights] if descriptors else [], socket.MSG_NOSIGNAL)

    def readable(self, patience: float) -> bool:
        """Wait until there is a message, or the end; False after ``patience`` seconds without."""
        return readable(self._socket.fileno(), patience)

    def has_room(self) -> bool:
        """Return True if a message can be sent now without waiting for the reader."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        return bool(poll.poll(0))

    def end(self) -> None:
        """Send nothing more: the reader sees the end behind what was sent. Receiving goes on."""
        with contextlib.suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_WR)

    def receive(self) -> Message | None:
        """Wait for the next message; None once every writer has closed its end.

        Raises:
            OSError: this process has no room for the descriptors that came with it.
        """
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(*_ASK)
        except ConnectionResetError:
            # The other end was closed with messages unread, which is told once. What it had sent
            # before is still to be read, and then comes the end.
            data, ancillary, flags, _ = self._socket.recvmsg(*_ASK)
        if not data:
            return None
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content[: len(content) // _ITEM_SIZE * _ITEM_SIZE])
        if flags & socket.MSG_CTRUNC:  # the kernel has closed those that found no room
            for fd in descriptors:
                os.close(fd)
            raise OSError(
                errno.EMFILE,
                "no room for the descriptors that came with a message: raise the limit on open files "
                "(ulimit -n)",
            )
        if data == _IN_FILE:
            data = _read(descriptors.pop())
        head, _, raw = data.partition(b"\n")
        return Message(json.loads(head), raw, tuple(descriptors))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def readable(descriptor: int, patience: float | None) -> bool:
    """Wait until a descriptor can be read, or has ended; False after ``patience`` seconds without.

    Without a patience it waits for ever.

    By poll(2), which takes descriptors of any number: select(2) refuses those above 1,023, which a
    process of a run with a thousand devices has.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if patience is None else patience * 1000))


def _sealed(*pieces: bytes) -> int:
    """A memory file of these bytes, which nobody can change any more; returns its descriptor."""
    file = os.memfd_create("message", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(file, rest) :]
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(file)
        raise
    return file


def _read(file: int) -> bytes:
    """The whole of a memory file, which is closed."""
    with open(file, "rb") as opened:
        opened.seek(0)  # the place is shared with the writer, who left it at the end
        return opened.read()

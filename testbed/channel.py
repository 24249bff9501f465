"""Messages between the processes of one run on one host: JSON, raw bytes and descriptors.

Roles report to the orchestrator over such a channel, and the orchestrator, the agent and the fork
server communicate over others. It is a Unix SOCK_SEQPACKET pair: messages stay whole, several
processes may write to the same end, and the reader sees the end of the stream when the last writer
has closed it. A channel must never leave the host or cross the emulated network.

A message may be as long as memory allows. The kernel takes a packet only if it fits into a send buffer,
so a longer message is put into a sealed memory file, and its packet carries the file's descriptor. One
message is one packet in either case: messages of several writers cannot mix, and they keep their order.
"""

import array
import contextlib
import errno
import fcntl
import json
import os
import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LARGEST = 7_000
"""Longest message in bytes that is sent in its packet. Up to this length the kernel needs two adjacent
pages for it; for packets of 104,000 bytes it needs more, and on a host whose memory a thousand devices
had fragmented it found none (ENOBUFS). A memory file takes single pages."""
MOST_DESCRIPTORS = 200
"""The most descriptors that one message may carry; the kernel takes 253."""
_IN_FILE = b"\0"
"""Packet of a message in a memory file, which is the last of the packet's descriptors. No other packet
begins like this, because the others begin with JSON."""
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_ITEM_SIZE = array.array("i").itemsize
_WHEN = struct.Struct("@ll")
_SENT_AT = 35
"""SO_TIMESTAMPNS and SCM_TIMESTAMPNS, which the standard library lacks."""
_ROOM = socket.CMSG_SPACE((MOST_DESCRIPTORS + 1) * _ITEM_SIZE) + socket.CMSG_SPACE(_WHEN.size)
# Plain integers: a member of an enumeration takes microseconds to combine, at each message.
_WITHOUT_DESCRIPTORS, _CUT = int(socket.MSG_CTRUNC), int(socket.MSG_TRUNC)
_ASK = (LARGEST, _ROOM, socket.MSG_CMSG_CLOEXEC)
_PASSING = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL | socket.MSG_CMSG_CLOEXEC)


class InvalidMessageError(ValueError):
    """A received message is not one that the channel carries."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One message as it was received.

    Attributes:
        fields: the JSON object.
        raw: the bytes after the JSON object.
        descriptors: the received file descriptors; the receiver owns them and must close them.
        when: when it was sent, in nanoseconds of CLOCK_REALTIME, after ``note_times``; else 0.
    """

    fields: dict[str, Any]
    raw: bytes = b""
    descriptors: Sequence[int] = field(default=())
    when: int = 0


class Channel:
    """One end of a channel between processes of this host."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple["Channel", "Channel"]:
        """Make the two ends of a new channel."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), cls(theirs)

    @classmethod
    def from_descriptor(cls, fd: int) -> "Channel":
        """Take over an end that was inherited as a file descriptor."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Return the descriptor of this end, for selectors."""
        return self._socket.fileno()

    def send(
        self, fields: dict[str, Any], raw: bytes = b"", descriptors: Sequence[int] = ()
    ) -> None:
        """Send one message of any length; wait while the socket has no room for it.

        Raises:
            ValueError: there are more than ``MOST_DESCRIPTORS`` descriptors.
            OSError: no process has the other end open, or there is no memory for a long message.
        """
        if len(descriptors) > MOST_DESCRIPTORS:
            raise ValueError(
                f"{len(descriptors)} descriptors are more than the {MOST_DESCRIPTORS} of a message"
            )
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
        """Wait for a message or the end; return False if neither comes in ``patience`` seconds."""
        return readable(self._socket.fileno(), patience)

    def has_room(self) -> bool:
        """Return True if a message can be sent now without waiting for the reader."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        return bool(poll.poll(0))

    def end(self) -> None:
        """Stop sending: the reader sees the end after the last message. This end can still receive."""
        with contextlib.suppress(OSError):  # the other end is closed
            self._socket.shutdown(socket.SHUT_WR)

    def note_times(self) -> None:
        """Have the kernel note from now on when each message was sent."""
        self._socket.setsockopt(socket.SOL_SOCKET, _SENT_AT, 1)

    def receive(self, most: int | None = None) -> ReceivedMessage | None:
        """Wait for the next message and return it; return None once every writer has closed its end.

        Args:
            most: bytes of the longest message, and with it no descriptors may come, if the other end is
                not to be believed; None for one that runs the testbed's own code.

        Raises:
            InvalidMessageError: what came is no message.
            OSError: this process cannot have as many open files as came with the message.
        """
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(*_ASK)
        except ConnectionResetError:
            # The other end was closed with messages unread, which the kernel reports once. The
            # messages that it had sent can still be read, and then comes the end.
            data, ancillary, flags, _ = self._socket.recvmsg(*_ASK)
        descriptors, when = _attached(ancillary)
        kept: Sequence[int] = ()
        try:
            if flags & _WITHOUT_DESCRIPTORS:  # the kernel has closed the descriptors without room
                if most is not None:
                    raise InvalidMessageError(
                        "a message with more descriptors than there is room for"
                    )
                raise OSError(
                    errno.EMFILE,
                    "this process has no room for the descriptors of a message: raise the limit on "
                    "open files (ulimit -n)",
                )
            if not data:
                return None
            if flags & _CUT:
                raise InvalidMessageError(f"a packet of more than {LARGEST:,} bytes")
            own = list(descriptors)
            if data == _IN_FILE:
                data = _read(own.pop() if own else None, most)
            if most is not None and own:
                raise InvalidMessageError("a message with descriptors")
            fields, raw = parsed(data)
            kept = tuple(own)
            return ReceivedMessage(fields, raw, kept, when)
        finally:
            for fd in descriptors:
                if fd not in kept:
                    os.close(fd)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet of a channel, for a process that only passes it on.

    Attributes:
        content: the bytes; of a long message those of its memory file.
        long: whether it was in a memory file.
        descriptors: those that came with it; the receiver owns them.
    """

    content: bytes
    long: bool
    descriptors: Sequence[int]


def receive_packet(end: socket.socket, longest: int, most: int) -> Packet | None:
    """Return the packet that has come to an end of a channel; None once the other end is closed.

    Args:
        longest: bytes of the longest packet.
        most: bytes of the longest message in a memory file.

    Raises:
        BlockingIOError: none has come.
        InvalidMessageError: it is longer, or its memory file is none.
    """
    try:
        data, ancillary, flags, _ = end.recvmsg(longest, _ROOM, _PASSING)
    except ConnectionResetError:
        data, ancillary, flags, _ = end.recvmsg(longest, _ROOM, _PASSING)
    own = list(_attached(ancillary)[0])
    try:
        if flags & _CUT:
            raise InvalidMessageError(f"a packet of more than {longest:,} bytes")
        if data != _IN_FILE or not own:
            return Packet(data, False, own) if data else None
        content = _read(own[-1], most)
    except InvalidMessageError:
        for one in own:
            os.close(one)
        raise
    os.close(own.pop())
    return Packet(content, True, own)


def send_packet(
    end: socket.socket, content: bytes, *, long: bool = False, descriptors: Sequence[int] = ()
) -> None:
    """Send a packet as it was received, if there is room for it.

    Raises:
        BlockingIOError: there is none.
        OSError: no process has the other end open.
    """
    own = list(descriptors)
    file = _sealed(content) if long else None
    if file is not None:
        own.append(file)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", own))
    try:
        end.sendmsg([_IN_FILE if long else content], [rights] if own else [], _PASSING)
    finally:
        if file is not None:
            os.close(file)


def readable(descriptor: int, patience: float | None) -> bool:
    """Wait until a descriptor can be read or has ended; False if not in ``patience`` seconds.

    With None it waits for ever. It uses poll(2): select(2) refuses descriptors above 1,023, and a
    process of a run with a thousand devices has some.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if patience is None else patience * 1000))


def _attached(ancillary: Sequence[tuple[int, int, bytes]]) -> tuple[Sequence[int], int]:
    """Return the descriptors that came with a message, and when it was sent, or 0."""
    descriptors, when = array.array("i"), 0
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) // _ITEM_SIZE * _ITEM_SIZE])
        elif (level, kind) == (socket.SOL_SOCKET, _SENT_AT):
            seconds, nanoseconds = _WHEN.unpack(content)
            when = seconds * 10**9 + nanoseconds
    return descriptors, when


def _sealed(*pieces: bytes) -> int:
    """Make a memory file of some bytes that can no longer be changed, and return its descriptor."""
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


def _read(file: int | None, most: int | None) -> bytes:
    """Return the content of a message's memory file.

    Raises:
        InvalidMessageError: there is none, it can still be changed, or it is longer than ``most``.
    """
    if file is None:
        raise InvalidMessageError("a message without its memory file")
    try:
        sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # it is a file of another kind
        sealed = False
    if not sealed:
        raise InvalidMessageError("a message in a file that its sender can still change")
    size = os.fstat(file).st_size
    if most is not None and size > most:
        raise InvalidMessageError(f"a message of {size:,} bytes, and {most:,} are the most")
    # The offset is shared with the writer, which left it at the end.
    with open(file, "rb", closefd=False) as opened:
        opened.seek(0)
        return opened.read()


def parsed(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON object and the raw bytes of a message.

    Raises:
        InvalidMessageError: they are no message.
    """
    head, _, raw = data.partition(b"\n")
    try:
        fields = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise InvalidMessageError("a message that is no JSON") from error
    if not isinstance(fields, dict):
        raise InvalidMessageError("a message that is no JSON object")
    return fields, raw

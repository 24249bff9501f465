"""Messages as frames: a header of 32 bytes, then a body of the length that the header states.

Every message has the same header (little-endian):

====== ======= =================================================================
offset type    meaning
====== ======= =================================================================
0      2 bytes magic, ``TB``
2      uint8   protocol version, 1
3      uint8   kind of message
4      uint8   encoding of the body (PUSH and PARAMETERS; 0 elsewhere)
5      3 bytes 0
8      uint64  number: device (HELLO; in the upper half how often it was killed and
               came back), parameters (WELCOME, RESUME), version (PARAMETERS),
               base version (PUSH, FINISHED), 0 elsewhere
16     float32 loss of the mini-batch (PUSH), 0 elsewhere
20     uint32  0
24     uint64  length of the body in bytes
====== ======= =================================================================

HELLO's body is the run's secret; RESUME's the whole vector that the worker was sent last, or nothing;
PUSH's the encoded update; PARAMETERS' the whole float32 vector or,
encoded as an update, the new values of those that changed since the PARAMETERS before it; the others
have none. ``Receiver`` reads them from a stream and refuses, before it takes memory for a
body, what the expecting side did not say it accepts.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from testbed.wire import WireError

MAGIC = b"TB"
PROTOCOL = 1
HEADER = struct.Struct("<2sBBB3xQfIQ")
SECRET_SIZE = 32


class Kind(IntEnum):
    """What a message is."""

    HELLO = 1
    """Worker or evaluator to server: who it is."""
    WELCOME = 2
    """Server's answer to a HELLO it accepts."""
    PULL = 3
    """Worker to server: send the parameters."""
    PARAMETERS = 4
    """Server's answer to a PULL, and what it sends the evaluator unasked."""
    PUSH = 5
    """Worker to server: an update."""
    STOP = 6
    """Server to all: training is over, close the connection."""
    FINISHED = 7
    """Late worker to server: it has finished a gradient, and newer parameters were there already."""
    RESUME = 8
    """In place of WELCOME, from a server that was killed and has come back: go on from where it was."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message; the body is valid until a receiver is used that shares its receiver's memory."""

    kind: Kind
    encoding: int
    number: int
    loss: float
    body: memoryview

    @property
    def size(self) -> int:
        """Bytes of the stream that this message took, header included."""
        return HEADER.size + len(self.body)

    def kept(self, memory: memoryview | None = None) -> "Frame":
        """This message, with a copy of its body that no receiver overwrites.

        Args:
            memory: where the copy goes, at least as long as the body; None: into new memory, which is
                writable, because torch warns of arrays that nobody may write to.
        """
        if memory is None:
            body = memoryview(bytearray(self.body))
        else:
            body = memory[: len(self.body)]
            body[:] = self.body
        return replace(self, body=body)


def header(
    kind: Kind, number: int = 0, *, encoding: int = 0, loss: float = 0.0, length: int = 0
) -> bytes:
    """The 32 bytes before a body of ``length`` bytes."""
    return HEADER.pack(MAGIC, PROTOCOL, kind, encoding, number, loss, 0, length)


def parse(head: bytes, accepts: Mapping[Kind, int]) -> tuple[Kind, int, int, float, int]:
    """Read a header: (kind, encoding, number, loss, length of the body).

    Args:
        head: 32 bytes.
        accepts: the kinds that may come, each with the longest body that it may have.

    Raises:
        WireError: this is not our protocol, or nothing that may come now.
    """
    magic, protocol, kind, encoding, number, loss, reserved, length = HEADER.unpack(head)
    if magic != MAGIC:
        raise WireError(f"this is not the testbed's protocol (it begins with {magic!r})")
    if protocol != PROTOCOL:
        raise WireError(f"protocol version {protocol}, expected {PROTOCOL}")
    if kind not in accepts:
        allowed = ", ".join(k.name for k in accepts) or "none"
        raise WireError(f"a message of kind {kind}; allowed now: {allowed}")
    if length > accepts[kind]:
        raise WireError(f"a {Kind(kind).name} of {length} bytes, over the limit of {accepts[kind]}")
    if reserved != 0 or head[5:8] != b"\0\0\0":
        raise WireError("reserved bytes of the header are not 0")
    return Kind(kind), encoding, number, loss, length


class Receiver:
    """Reads frames from a stream of bytes.

    Usage: receive into the memory that ``buffer`` returns, then iterate over ``received``. Small
    frames are taken whole from one read; the body of a frame that came only in part is received
    straight into memory of its own, without another copy.
    """

    def __init__(self, accepts: Mapping[Kind, int], scratch: memoryview) -> None:
        """Make a receiver.

        Args:
            accepts: the kinds that may come, each with the longest body that it may have.
            scratch: memory to receive into; several receivers of one thread may share it, because
                nothing is kept there between two calls.
        """
        self._accepts = accepts
        self._scratch = scratch
        self._head = bytearray()
        self._body = memoryview(b"")
        self._expected: Frame | None = None
        self._filled = 0
        self._direct = False

    @property
    def between_frames(self) -> bool:
        """Whether every byte so far belonged to a whole frame."""
        return self._expected is None and not self._head

    @property
    def missing(self) -> int:
        """How many more bytes the frame being received needs at least."""
        if self._expected is not None:
            return len(self._expected.body) - self._filled
        return HEADER.size - len(self._head)

    @property
    def incomplete(self) -> int:
        """Bytes received so far of a frame that is not complete."""
        if self._expected is not None:
            return HEADER.size + self._filled
        return len(self._head)

    def accept(self, accepts: Mapping[Kind, int]) -> None:
        """Change what may come from here on."""
        self._accepts = accepts

    def _memory(self, length: int) -> memoryview:
        """Memory for a body. The last one's is used again: fresh memory of a megabyte costs the
        kernel two hundred page faults, more than receiving into it."""
        if len(self._body) < length:
            self._body = memoryview(bytearray(length))
        return self._body[:length]

    def buffer(self) -> memoryview:
        """Where the next bytes of the stream go."""
        self._direct = self._expected is not None
        if self._expected is not None:
            return self._expected.body[self._filled :]
        return self._scratch

    def received(self, count: int) -> Iterator[Frame]:
        """Take note of ``count`` bytes received into ``buffer()``; yields the frames they complete.

        Raises:
            WireError: the stream is not one of ours, or brings what is not accepted now.
        """
        if self._direct:
            assert self._expected is not None
            self._filled += count
            if self._filled == len(self._expected.body):
                frame, self._expected = self._expected, None
                yield frame
            return
        position = 0
        while position < count:
            taken = min(HEADER.size - len(self._head), count - position)
            self._head += self._scratch[position : position + taken]
            position += taken
            if len(self._head) < HEADER.size:
                return
            kind, encoding, number, loss, length = parse(bytes(self._head), self._accepts)
            self._head.clear()
            if length <= count - position:
                body = self._scratch[position : position + length]
                position += length
                yield Frame(kind, encoding, number, loss, body)
            else:
                self._filled = count - position
                body = self._memory(length)
                body[: self._filled] = self._scratch[position:count]
                self._expected = Frame(kind, encoding, number, loss, body)
                return

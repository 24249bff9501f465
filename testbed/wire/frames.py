"""Messages as frames: a header of 32 bytes, then a body whose length the header holds.

Every message has the same header (little-endian):

====== ======= =================================================================
offset type    meaning
====== ======= =================================================================
0      2 bytes magic, ``TB``
2      uint8   protocol version, 1
3      uint8   kind of message
4      uint8   encoding of the body (PUSH and PARAMETERS; 0 elsewhere)
5      3 bytes 0
8      uint64  device (HELLO; in the upper half how often it was killed and came
               back), number of parameters (WELCOME, RESUME), version
               (PARAMETERS), base version (PUSH, FINISHED), 0 elsewhere
16     float32 loss of the mini-batch (PUSH), 0 elsewhere
20     uint32  number of updates in the sum (PUSH of an aggregator), number of the
               mini-batch that is dealt (PARAMETERS, from a stream), how often the one
               that answers was killed and came back (WELCOME of a peer), 0 elsewhere
24     uint64  length of the body in bytes
====== ======= =================================================================

The body of HELLO is the run's secret; of RESUME the whole vector that the worker was sent last, or
nothing; of PUSH the encoded update; of PARAMETERS the whole float32 vector or, encoded as an update,
the new values of the parameters that changed since the previous PARAMETERS. Other messages have no
body. ``Receiver`` reads messages from a stream; it refuses a kind or a length that it was not told to
accept before it allocates memory for the body.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from testbed.wire import WireError

MAGIC = b"TB"
PROTOCOL = 1
LAYOUT = {
    "magic": "2s",
    "protocol": "B",
    "kind": "B",
    "encoding": "B",
    "zeros": "3x",
    "number": "Q",
    "loss": "f",
    "count": "I",
    "length": "Q",
}
"""The fields of a header, each with its type as ``struct`` writes it."""
HEADER = struct.Struct("<" + "".join(LAYOUT.values()))
SECRET_SIZE = 32


class Kind(IntEnum):
    """The kind of a message."""

    HELLO = 1
    """Worker or evaluator to server: the device's number and the run's secret."""
    WELCOME = 2
    """Server's answer to a HELLO that it accepts."""
    PULL = 3
    """Worker to server: send the parameters."""
    PARAMETERS = 4
    """Server's answer to a PULL; the evaluator gets it unasked."""
    PUSH = 5
    """Worker to server: an update."""
    STOP = 6
    """Server to all: training is over, close the connection."""
    FINISHED = 7
    """Worker to server: it finished a gradient too late, as it already has newer parameters."""
    RESUME = 8
    """In place of WELCOME, from a server restored from a checkpoint: go on from the checkpoint."""


_KINDS = {int(kind): kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Head:
    """The values in a header; ``length`` is that of the body, in bytes."""

    kind: Kind
    encoding: int
    number: int
    loss: float
    count: int
    length: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One message; its body is valid until a receiver with the same memory is used again."""

    kind: Kind
    encoding: int
    number: int
    loss: float
    body: memoryview
    count: int = 0

    @property
    def size(self) -> int:
        """The bytes of this message in the stream, header included."""
        return HEADER.size + len(self.body)

    def kept(self, memory: memoryview | None = None) -> "Frame":
        """Return this message with a copy of its body that no receiver overwrites.

        Args:
            memory: where the copy goes, at least as long as the body; None: new memory, which is
                writable, because torch warns of read-only arrays.
        """
        if memory is None:
            body = memoryview(bytearray(self.body))
        else:
            body = memory[: len(self.body)]
            body[:] = self.body
        return replace(self, body=body)


_COUNTS = frozenset({Kind.PUSH, Kind.PARAMETERS, Kind.WELCOME})
"""The kinds whose header has a count."""


def header(
    kind: Kind,
    number: int = 0,
    *,
    encoding: int = 0,
    loss: float = 0.0,
    count: int = 0,
    length: int = 0,
) -> bytes:
    """Return the 32 bytes before a body of ``length`` bytes."""
    return HEADER.pack(MAGIC, PROTOCOL, kind, encoding, number, loss, count, length)


def parse(head: bytes, accepts: Mapping[Kind, int]) -> Head:
    """Read a header.

    Args:
        head: 32 bytes.
        accepts: the accepted kinds, each with the length of its longest body.

    Raises:
        WireError: another protocol, or a message that is not accepted.
    """
    magic, protocol, kind, encoding, number, loss, count, length = HEADER.unpack(head)
    if magic != MAGIC:
        raise WireError(f"this is not the testbed's protocol (it begins with {magic!r})")
    if protocol != PROTOCOL:
        raise WireError(f"protocol version {protocol}, expected {PROTOCOL}")
    if kind not in accepts:
        allowed = ", ".join(k.name for k in accepts) or "none"
        raise WireError(f"a message of kind {kind}; allowed now: {allowed}")
    if length > accepts[kind]:
        raise WireError(f"a {Kind(kind).name} of {length} bytes, over the limit of {accepts[kind]}")
    if head[5:8] != b"\0\0\0" or (count and kind not in _COUNTS):
        raise WireError("reserved bytes of the header are not 0")
    return Head(_KINDS[kind], encoding, number, loss, count, length)


class Receiver:
    """A reader of frames from a stream of bytes.

    Usage: receive into the memory that ``buffer`` returns, then iterate over ``received``. Small
    frames are taken whole from one read; the rest of a body that arrived only in part is received
    straight into its own memory, without another copy.
    """

    def __init__(self, accepts: Mapping[Kind, int], scratch: memoryview) -> None:
        """Make a receiver.

        Args:
            accepts: the accepted kinds, each with the length of its longest body.
            scratch: memory to receive into; several receivers of one thread may share it, because
                they keep nothing there between two calls.
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
        """True if every byte so far belonged to a complete frame."""
        return self._expected is None and not self._head

    @property
    def missing(self) -> int:
        """The least number of bytes that the frame being received still needs."""
        if self._expected is not None:
            return len(self._expected.body) - self._filled
        return HEADER.size - len(self._head)

    @property
    def incomplete(self) -> int:
        """The bytes received so far of a frame that is not complete."""
        if self._expected is not None:
            return HEADER.size + self._filled
        return len(self._head)

    def accept(self, accepts: Mapping[Kind, int]) -> None:
        """Set the accepted kinds and their longest bodies from now on."""
        self._accepts = accepts

    def _memory(self, length: int) -> memoryview:
        """Return memory for a body; that of the last body is used again.

        A megabyte of new memory costs the kernel two hundred page faults, more than receiving into it.
        """
        if len(self._body) < length:
            self._body = memoryview(bytearray(length))
        return self._body[:length]

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes of the stream."""
        self._direct = self._expected is not None
        if self._expected is not None:
            return self._expected.body[self._filled :]
        return self._scratch

    def received(self, count: int) -> Iterator[Frame]:
        """Take ``count`` bytes that were received into ``buffer()``; yield the frames they complete.

        Raises:
            WireError: another protocol, or a message that is not accepted now.
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
            head = parse(bytes(self._head), self._accepts)
            self._head.clear()
            if head.length <= count - position:
                body = self._scratch[position : position + head.length]
                position += head.length
                yield _frame(head, body)
            else:
                self._filled = count - position
                body = self._memory(head.length)
                body[: self._filled] = self._scratch[position:count]
                self._expected = _frame(head, body)
                return


def _frame(head: Head, body: memoryview) -> Frame:
    return Frame(head.kind, head.encoding, head.number, head.loss, body, head.count)

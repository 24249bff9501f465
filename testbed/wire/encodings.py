"""Encodings of an update: pure pairs of encode and decode, chosen by the run.

One byte of the message header describes the body completely:

====  ===================================================================================
bits  meaning
====  ===================================================================================
0-2   indices: 0 a range, by its first; 1 none, a value for every parameter; 2 uint32; 3 gaps;
      4 Rice; 5 Elias-Fano; 6 bitmap; 7 gaps in bytes
3-5   values: 0 float32; 1 float16; 2 bfloat16; 3 int8
6     1: the body is a Zstandard frame; in it, values of 2 and 4 bytes are stored with all their
      lowest bytes first, then all the next bytes (as in Blosc's shuffle)
7     1: an encoding of a user's own (``own_encoding``); all other bits are then 0
====  ===================================================================================

So 1 is a dense float32 vector, and 2 a plain sparse update: all indices, then all values, 8 bytes an
entry. The body is the indices (layouts: ``indices``), then the values (``values``); all numbers are
little-endian. Encoders return memory views where they can, so that a dense gradient is not copied
before the kernel takes it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from testbed.encoding_choice import EncodingChoice
from testbed.updates import DenseUpdate, FloatVector, IndexVector, SparseUpdate, Update, as_bytes
from testbed.wire import WireError
from testbed.wire.indices import INDEX_CODINGS, most_compressible, shortest
from testbed.wire.indices.coding import IndexCoding, Sized
from testbed.wire.values import VALUE_CODINGS
from testbed.wire.zstandard import Zstandard

if sys.byteorder != "little":
    raise ImportError("the wire format is written by views of memory, for little-endian machines")

DENSE = 1
"""The encoding byte of a dense float32 vector; as bits 0-2, any dense update."""
OWN = 1 << 7
"""The encoding byte of an encoding of a user's own."""
_COMPRESSED = 1 << 6
_NO_INDICES = Sized(DENSE, 0, tuple)
_NAMES = {DENSE: "dense"} | {coding.code: name for name, coding in INDEX_CODINGS.items()}


class UpdateCodec(Protocol):
    """An encoder and decoder of the updates of one model, as one run has chosen.

    Attributes:
        choice: the run's choice of encoding.
        lossy: True if values may change on the way.
        longest: the greatest number of bytes that a body can have.
    """

    choice: EncodingChoice
    lossy: bool
    longest: int

    def encode(self, update: Update) -> tuple[int, Sequence[bytes | memoryview]]:
        """Return the encoding byte, and the pieces whose concatenation is the body.

        The pieces may share memory with the update.
        """
        ...

    def measure(self, update: Update) -> int:
        """Return the number of bytes of the body, which is written only if it must be."""
        ...

    def decode(self, encoding: int, body: memoryview) -> Update:
        """Read an update; the result may share the body's memory.

        Values may be anything, NaN included: a diverging model is a result, not an attack.

        Raises:
            WireError: another encoding than this run's, an impossible length, or indices out of range
                or order.
        """
        ...

    def rounded(self, update: Update) -> Update:
        """Return the update as the receiver will read it; the same object if the encoding is exact."""
        ...


class Codec(UpdateCodec):
    """A codec of the encodings that are built in.

    Between two calls it keeps only the compressor's memory. It must be used by one thread only.
    """

    def __init__(self, choice: EncodingChoice, sizes: Sequence[int]) -> None:
        """Make a codec for a model whose tensors have these sizes, in the order of the flat vector."""
        self.choice = choice
        self._total = sum(sizes)
        self._values = VALUE_CODINGS[choice.values]
        names = INDEX_CODINGS if choice.indices == "auto" else [choice.indices]
        self._indices = {name: INDEX_CODINGS[name](sizes) for name in names}
        self._by_code = {coding.code: coding for coding in self._indices.values()}
        self._zstandard = Zstandard(choice.level) if choice.compression == "zstd" else None
        self.lossy = choice.values != "float32"
        before_values = max(coding.longest() for coding in self._indices.values())
        self.longest = before_values + self._values.size(self._total)

    def encode(self, update: Update) -> tuple[int, Sequence[bytes | memoryview]]:
        values = self._values.encode(update.values)
        code = self._values.code << 3
        if self._zstandard is not None:
            sized = self._size(update, most_compressible)
            frame = self._zstandard.compress((*sized.write(), *self._planes(values)))
            if len(frame) < sized.size + len(values):
                return code | sized.code | _COMPRESSED, [frame]
        sized = self._size(update, shortest)
        return code | sized.code, [*sized.write(), values]

    def measure(self, update: Update) -> int:
        if self._zstandard is not None:
            return sum(map(len, self.encode(update)[1]))
        return self._size(update, shortest).size + self._values.size(len(update.values))

    def decode(self, encoding: int, body: memoryview) -> Update:
        coding = self._coding(encoding)
        unshuffle = False
        if encoding & _COMPRESSED:
            assert self._zstandard is not None
            body = self._zstandard.decompress(body, self.longest)
            unshuffle = True
        if coding is None:
            expected = self._values.size(self._total)
            if len(body) != expected:
                raise WireError(
                    f"a dense update of {len(body)} bytes for {self._total} parameters, expected "
                    f"{expected}"
                )
            return DenseUpdate(self._read_values(body, unshuffle))
        indices, rest = coding.decode(body, self._values)
        return SparseUpdate(indices, self._read_values(rest, unshuffle))

    def rounded(self, update: Update) -> Update:
        if not self.lossy:
            return update
        values = self._values.decode(self._values.encode(update.values))
        if isinstance(update, SparseUpdate):
            return SparseUpdate(update.indices, values)
        return DenseUpdate(values)

    def _size(
        self, update: Update, auto: Callable[[dict[str, IndexCoding], IndexVector, int], Sized]
    ) -> Sized:
        """Return the update's indices in the run's coding, or in the coding that ``auto`` chooses."""
        if isinstance(update, DenseUpdate):
            return _NO_INDICES
        if len(self._indices) > 1:
            return auto(self._indices, update.indices, self._total)
        (coding,) = self._indices.values()
        return coding.sized(update.indices)

    def _coding(self, encoding: int) -> IndexCoding | None:
        """Return the coding of the indices; None for a dense update."""
        code = encoding & 7
        allowed = {self._values.code << 3 | code}
        if self._zstandard is not None:
            allowed.add(_COMPRESSED | self._values.code << 3 | code)
        if encoding in allowed and (code == DENSE or code in self._by_code):
            return self._by_code.get(code)
        raise WireError(
            f"an update encoded as {describe(encoding)}; this run's encoding is {self.choice.name}"
        )

    def _planes(self, values: memoryview) -> Sequence[memoryview]:
        """Return all first bytes of the values, then all second bytes, and so on."""
        width = self._values.width
        if width == 1:
            return [values]
        matrix = np.frombuffer(values, np.uint8).reshape(-1, width)
        return [memoryview(matrix[:, plane].tobytes()) for plane in range(width)]

    def _read_values(self, data: memoryview, shuffled: bool) -> FloatVector:
        width = self._values.width
        if shuffled and width > 1:
            data = as_bytes(np.frombuffer(data, np.uint8).reshape(width, -1).T.flatten())
        return self._values.decode(data)


def describe(encoding: int) -> str:
    """Return the meaning of an encoding byte for people, such as ``rice float16 zstd``."""
    if encoding == OWN:
        return "own"
    indices = _NAMES.get(encoding & 7)
    values = next((v.name for v in VALUE_CODINGS.values() if v.code == encoding >> 3 & 7), None)
    if indices is None or values is None or encoding >> 7:
        return f"unknown ({encoding})"
    return f"{indices} {values}" + (" zstd" if encoding & _COMPRESSED else "")

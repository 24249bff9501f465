"""Codings of the values of an update, of 32, 16 or 8 bits each.

NaN stays NaN in every type, and finite values stay finite: a value beyond a type's range becomes the
largest of that type. An infinity stays an infinity where the type has one; int8 has none and makes it
NaN, so that a diverging model never looks sound. Readers accept any value, NaN included: a diverging
model is a result, not an attack.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from testbed.updates import FloatVector, as_bytes
from testbed.wire import WireError

BLOCK = 64
"""Values that share a scale in int8, which costs 0.25 bits each; ``bench.encodings`` compares sizes."""
_NAN = -128
_LARGEST_HALF = np.float32(65504).view(np.uint32)
_SMALLEST_NORMAL_HALF = np.float32(2**-14).view(np.uint32)
_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""Every float16, indexed by its bits; a look-up takes a third of the time of a conversion."""
_LARGEST_BRAIN = np.uint16(0x7F7F)


class ValueCoding(ABC):
    """A type of values.

    Attributes:
        name: the name in an experiment file.
        code: the bits in the encoding byte.
        width: bytes of one value.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    width: ClassVar[int]

    def size(self, count: int) -> int:
        """Return the number of bytes that ``count`` values take."""
        return self.width * count

    def count(self, length: int, most: int, beside: int) -> int:
        """Return the number of values in ``length`` bytes, which hold ``beside`` more bytes per value.

        Raises:
            WireError: no number of values up to ``most`` takes exactly ``length`` bytes.
        """

        def bytes_of(count: int) -> int:
            return beside * count + self.size(count)

        count = bisect_right(range(most + 1), length, key=bytes_of) - 1
        if bytes_of(count) != length:
            raise WireError(f"a sparse update of {length} bytes for {most} parameters")
        return count

    @abstractmethod
    def encode(self, values: FloatVector) -> memoryview:
        """Return the values as ``size(len(values))`` bytes."""

    @abstractmethod
    def decode(self, data: memoryview) -> FloatVector:
        """Return the values of these bytes, possibly sharing their memory.

        Raises:
            WireError: no encoder writes such bytes.
        """


class Float32(ValueCoding):
    """Unchanged values of 4 bytes each, encoded without a copy."""

    name, code, width = "float32", 0, 4

    def encode(self, values: FloatVector) -> memoryview:
        return as_bytes(values)

    def decode(self, data: memoryview) -> FloatVector:
        values = np.frombuffer(data, np.float32)
        # The values may begin at an unaligned address, which torch does not accept.
        return values if values.flags.aligned else values.copy()


class Float16(ValueCoding):
    """IEEE 754 half precision: 11 significant bits, 6·10⁻⁸ to 65,504."""

    name, code, width = "float16", 1, 2

    def encode(self, values: FloatVector) -> memoryview:
        # With integers (after F. Giesen's float_to_half_fast3_rtne): numpy's own conversion raises a
        # flag for every tiny value, which takes 30 times as long.
        bits = values.view(np.uint32)
        magnitude = bits & np.uint32(0x7FFFFFFF)
        special = magnitude >= 0x7F800000
        np.minimum(magnitude, _LARGEST_HALF, out=magnitude)
        # Adding ½ moves the bits that a subnormal half keeps to the end of the float, and rounds them.
        tiny = (magnitude.view(np.float32) + np.float32(0.5)).view(np.uint32)
        tiny -= np.uint32(0x3F000000)
        halves = (magnitude >> np.uint32(13)) & np.uint32(1)
        halves += magnitude
        halves += np.uint32(0xC8000FFF)  # the new exponent bias, and half a last place
        halves >>= np.uint32(13)
        np.copyto(halves, tiny, where=magnitude < _SMALLEST_NORMAL_HALF)
        halves |= (bits >> np.uint32(16)) & np.uint32(0x8000)
        result = halves.astype(np.uint16)
        if special.any():
            nan = np.isnan(values[special])
            sign = (bits[special] >> np.uint32(16)).astype(np.uint16) & np.uint16(0x8000)
            result[special] = sign | np.where(nan, np.uint16(0x7E00), np.uint16(0x7C00))
        return as_bytes(result)

    def decode(self, data: memoryview) -> FloatVector:
        return _HALVES.take(np.frombuffer(data, np.uint16))


class BFloat16(ValueCoding):
    """The upper half of a float32, rounded to nearest even: 8 significant bits, the same range."""

    name, code, width = "bfloat16", 2, 2

    def encode(self, values: FloatVector) -> memoryview:
        bits = values.view(np.uint32)
        rounded = (bits >> np.uint32(16)) & np.uint32(1)
        rounded += np.uint32(0x7FFF)
        rounded += bits
        rounded >>= np.uint32(16)
        upper = rounded.astype(np.uint16)
        special = (upper & np.uint16(0x7F80)) == 0x7F80
        if special.any():
            beyond = special & np.isfinite(values)
            upper[beyond] = (upper[beyond] & np.uint16(0x8000)) | _LARGEST_BRAIN
        nan = np.isnan(values)
        if nan.any():  # a carry may have changed them to anything
            upper[nan] = (bits[nan] >> np.uint32(16)).astype(np.uint16) | np.uint16(0x0040)
        return as_bytes(upper)

    def decode(self, data: memoryview) -> FloatVector:
        return _widen(np.frombuffer(data, np.uint16))


class Int8(ValueCoding):
    """Multiples, −127 to 127, of a scale per block of 64 values; −128 is NaN.

    The scales come first, a bfloat16 each (the largest magnitude ÷ 127, rounded up, so that nothing
    overflows and any float32 has a scale), then the multiples.
    """

    name, code, width = "int8", 3, 1

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block

    def size(self, count: int) -> int:
        return count + 2 * -(-count // self._block)

    def encode(self, values: FloatVector) -> memoryview:
        count = len(values)
        blocks = np.zeros((-(-count // self._block), self._block), np.float32)
        flat = blocks.reshape(-1)
        flat[:count] = values
        finite = np.isfinite(flat)
        all_finite = bool(finite.all())
        if not all_finite:
            flat[~finite] = 0
        peaks = np.abs(np.maximum(blocks.max(axis=1), -blocks.min(axis=1)))  # no −0
        bits = (peaks / np.float32(127)).view(np.uint32)
        upper = ((bits + np.uint32(0xFFFF)) >> np.uint32(16)).astype(np.uint16)
        scales = _widen(upper)
        scales[scales == 0] = 1
        blocks /= scales[:, None]
        np.rint(blocks, out=blocks)
        multiples = flat.astype(np.int8)
        if not all_finite:
            multiples[~finite] = _NAN
        return memoryview(upper.tobytes() + multiples[:count].tobytes())

    def decode(self, data: memoryview) -> FloatVector:
        # Each full block has ``_block`` values of 1 byte and a scale of 2 bytes.
        count = len(data) - 2 * -(-len(data) // (self._block + 2))
        if count < 0 or self.size(count) != len(data):
            raise WireError(f"{len(data)} bytes are no number of 8-bit values and scales")
        split = len(data) - count
        upper = np.frombuffer(data[:split], np.uint16)
        if (upper >= 0x7F80).any():
            raise WireError("the scale of a block of 8-bit values is negative or not finite")
        multiples = np.frombuffer(data[split:], np.int8)
        values = multiples.astype(np.float32)
        with np.errstate(over="ignore"):
            values *= np.repeat(_widen(upper), self._block)[:count]
        nan = multiples == _NAN
        if nan.any():
            values[nan] = np.nan
        return values


VALUE_CODINGS: dict[str, ValueCoding] = {
    coding.name: coding for coding in (Float32(), Float16(), BFloat16(), Int8())
}


def _widen(upper: npt.NDArray[np.uint16]) -> FloatVector:
    """Return the float32 values whose upper halves are given and whose lower halves are 0."""
    return (upper.astype(np.uint32) << np.uint32(16)).view(np.float32)

"""Numbers as bits: fields of any width, unary numbers, and variable-length integers.

The first bit of a stream is the lowest bit of its first byte. All functions work on whole arrays; the
readers check their input before they expand it, and raise ``WireError``.
"""

import numpy as np
import numpy.typing as npt

from testbed.wire import WireError

Numbers = npt.NDArray[np.uint32]


def pack(numbers: Numbers, widths: int | Numbers) -> bytes:
    """Return the lowest ``widths`` bits of each number in sequence, the last byte padded with 0.

    Args:
        numbers: uint32, shape (n,).
        widths: bits, 0 to 32, of all numbers or, shape (n,), of each number.
    """
    widest = int(widths if isinstance(widths, int) else widths.max(initial=0))
    if widest == 0 or len(numbers) == 0:
        return b""
    dtype = _holding(widest)
    bits = np.unpackbits(numbers.astype(dtype).view(np.uint8), bitorder="little")
    matrix = bits.reshape(len(numbers), 8 * dtype.itemsize)
    if isinstance(widths, int):
        chosen = matrix[:, :widths]
    else:
        chosen = matrix[np.arange(matrix.shape[1], dtype=np.uint32) < widths[:, None]]
    return np.packbits(chosen, bitorder="little").tobytes()


def packed_size(count: int, widths: int | Numbers) -> int:
    """Return the number of bytes that ``pack`` makes of ``count`` numbers."""
    bits = count * widths if isinstance(widths, int) else int(widths.sum(dtype=np.uint64))
    return (bits + 7) // 8


def unpack(data: memoryview, count: int, widths: int | Numbers) -> Numbers:
    """Read what ``pack`` wrote; ``data`` has ``packed_size(count, widths)`` bytes.

    Raises:
        WireError: bits after the last number are not 0.
    """
    widest = int(widths if isinstance(widths, int) else widths.max(initial=0))
    if widest == 0 or count == 0:
        return np.zeros(count, np.uint32)
    total = count * widths if isinstance(widths, int) else int(widths.sum(dtype=np.uint64))
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    if bits[total:].any():
        raise WireError("the padding after packed numbers is not 0")
    dtype = _holding(widest)
    matrix = np.zeros((count, 8 * dtype.itemsize), np.uint8)
    if isinstance(widths, int):
        matrix[:, :widths] = bits[:total].reshape(count, widths)
    else:
        matrix[np.arange(matrix.shape[1], dtype=np.uint32) < widths[:, None]] = bits[:total]
    return np.packbits(matrix, bitorder="little").view(dtype).astype(np.uint32)


def pack_unary(numbers: Numbers) -> bytes:
    """Return each number n as n 0 bits and a 1, the last byte padded with 0."""
    if len(numbers) == 0:
        return b""
    ends = np.cumsum(numbers, dtype=np.int64)
    ends += np.arange(len(numbers))
    bits = np.zeros(int(ends[-1]) + 1, np.uint8)
    bits[ends] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def unpack_unary(data: memoryview, count: int) -> Numbers:
    """Read what ``pack_unary`` wrote; ``data`` holds exactly ``count`` numbers.

    Raises:
        WireError: it holds more or fewer numbers, or bytes after the last.
    """
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    ends = np.flatnonzero(bits.view(np.bool_))
    if len(ends) != count or (count and ends[-1] < 8 * (len(data) - 1)) or (data and not count):
        raise WireError(f"{len(ends)} unary numbers in {len(data)} bytes, expected {count}")
    numbers = np.diff(ends, prepend=-1)
    numbers -= 1
    return numbers.astype(np.uint32)


def varint(number: int) -> bytes:
    """Return a number in LEB128: 7 bits a byte, lowest first, the top bit of all but the last set."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def varint_size(number: int) -> int:
    """Return the number of bytes that ``varint`` makes of a number."""
    return max(1, (number.bit_length() + 6) // 7)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number, below 2³², that begins at byte ``at``, and the position after it.

    Raises:
        WireError: the number is cut off, too large, or longer than necessary.
    """
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise WireError("an update ends in the middle of a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 32 or (byte == 0 and shift):
                break
            return number, at
    raise WireError("a variable-length number is too large, or longer than it need be")


def bit_lengths(numbers: npt.NDArray[np.generic]) -> Numbers:
    """Return the number of bits of each number without leading zeros; 0 for 0."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.uint32)


def _holding(bits: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u1" if bits <= 8 else "<u2" if bits <= 16 else "<u4")

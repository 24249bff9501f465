"""Read idx files, the format of MNIST and similar datasets, gzipped or not, strictly.

A file is accepted completely or not at all: magic number, element type, number of dimensions and
length must match the format, to the last byte. The size in the header is checked against the greatest
size of the file's contents before memory is allocated, and the contents are hashed while they are
read, so that a checksum needs no second reading.
"""

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError

_UNSIGNED_BYTE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_RATIO = 1032
"""Deflate's limit: no file unpacks to more than this many times its size."""
_LARGEST = 1 << 30
"""The most unpacked bytes of a file; MNIST has 47 million."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class IdxFile:
    """The contents of one idx file.

    Attributes:
        values: uint8, with the requested number of dimensions.
        md5: checksum of the unpacked contents, header included, in hexadecimal.
    """

    values: npt.NDArray[np.uint8]
    md5: str


def read(path: Path, dimensions: int) -> IdxFile:
    """Read an idx file of unsigned bytes.

    Args:
        path: the file; its first bytes, not its name, tell whether it is compressed.
        dimensions: the number of dimensions that it must have (images 3, labels 1).

    Raises:
        DataError: the file is unreadable, truncated, damaged, too long, or another kind of file.
    """
    try:
        with path.open("rb") as raw:
            size = path.stat().st_size
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if not packed:
                return _read(raw, path, dimensions, room=size)
            with gzip.GzipFile(fileobj=raw) as unpacked:
                return _read(unpacked, path, dimensions, room=size * _DEFLATE_RATIO)
    except EOFError:
        raise DataError(
            f"{path} is truncated: its gzip stream breaks off after {size} bytes; fetch it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is damaged: its gzip stream of {size} bytes does not unpack ({error}); "
            "fetch it again"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _read(file: BufferedReader | gzip.GzipFile, path: Path, dimensions: int, room: int) -> IdxFile:
    """Read the unpacked contents from their start; they have at most ``room`` bytes."""
    header = _exactly(file, path, 4 + 4 * dimensions, 0)
    if header[:2] != b"\0\0":
        raise DataError(
            f"{path} is not an idx file: it starts with 0x{header[:4].hex()} at byte 0, not 0x0000"
        )
    if header[2] != _UNSIGNED_BYTE:
        raise DataError(
            f"{path} holds elements of type 0x{header[2]:02x} (byte 2); only unsigned bytes, 0x08, "
            "are read"
        )
    if header[3] != dimensions:
        raise DataError(
            f"{path} has {header[3]} dimensions (byte 3) where {dimensions} are needed; "
            "are images and labels mixed up?"
        )
    shape = tuple(int.from_bytes(header[at : at + 4], "big") for at in range(4, len(header), 4))
    length = math.prod(shape)
    if len(header) + length > min(room, _LARGEST):
        raise DataError(
            f"{path} claims {' × '.join(map(str, shape))} = {length} bytes after byte "
            f"{len(header)}, more than the file can hold ({room} bytes) or than is read ({_LARGEST})"
        )
    values = np.empty(length, dtype=np.uint8)
    buffer = values.data
    digest = hashlib.md5(header, usedforsecurity=False)
    at = 0
    while at < length:
        got = file.readinto(buffer[at : at + _CHUNK])
        if not got:
            raise _truncated(path, len(header) + at, len(header) + length)
        digest.update(buffer[at : at + got])
        at += got
    if file.read(1):
        raise DataError(
            f"{path} goes on after byte {len(header) + length}, where its "
            f"{' × '.join(map(str, shape))} values end; it is damaged or not what it seems"
        )
    return IdxFile(values.reshape(shape), digest.hexdigest())


def _exactly(file: BufferedReader | gzip.GzipFile, path: Path, count: int, at: int) -> bytes:
    content = file.read(count)
    if len(content) < count:
        raise _truncated(path, at + len(content), at + count)
    return content


def _truncated(path: Path, at: int, expected: int) -> DataError:
    return DataError(
        f"{path} is truncated: its contents end at byte {at} of {expected}; fetch it again"
    )

"""The file in which an emulated peer keeps its parameters, to go on from them after it was killed.

It has two slots, which are written in turn: a peer that is killed while it writes has left the other
one intact. A slot is, little-endian: a CRC-32 of the rest,
u32; the checkpoint's number and version, u64; the parameters, float32.
"""

import os
import struct
import zlib

import numpy as np

from testbed.updates import FloatVector, as_bytes

_CHECKSUM = struct.Struct("<I")
_HEAD = struct.Struct("<QQ")


class ModelFile:
    """The slots of one peer."""

    def __init__(self, descriptor: int, parameters: int) -> None:
        """Read what earlier incarnations of the peer have left."""
        self._descriptor = descriptor
        self._size = _CHECKSUM.size + _HEAD.size + 4 * parameters
        self._count = 0
        self.newest: tuple[int, FloatVector] | None = None
        """The version and parameters that earlier incarnations kept last; None: they kept none."""
        for slot in range(2):
            data = os.pread(descriptor, self._size, slot * self._size)
            if len(data) < self._size:
                continue
            (checksum,), rest = _CHECKSUM.unpack_from(data), data[_CHECKSUM.size :]
            count, version = _HEAD.unpack_from(rest)
            if count > self._count and zlib.crc32(rest) == checksum:
                self._count = count
                self.newest = version, np.frombuffer(rest, np.float32, offset=_HEAD.size).copy()

    def keep(self, version: int, parameters: FloatVector) -> None:
        """Write a checkpoint.

        Args:
            parameters: float32, (|Θ|,).

        Raises:
            OSError: there is no room.
        """
        self._count += 1
        head = _HEAD.pack(self._count, version)
        body = as_bytes(parameters)
        checksum = _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head)))
        os.pwritev(self._descriptor, [checksum, head, body], self._count % 2 * self._size)

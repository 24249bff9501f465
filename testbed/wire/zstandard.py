"""Zstandard (RFC 8878) for message bodies; the size is checked before memory is allocated."""

from collections.abc import Sequence

import zstandard

from testbed.wire import WireError

_WINDOW = 1 << 27
"""Bytes of the largest window that a frame may ask for, the default of the zstd command."""


class Zstandard:
    """A compressor and a decompressor, kept because making them takes longer than a small body."""

    def __init__(self, level: int) -> None:
        """Make a compressor of a level from 1 to 22."""
        # By default each frame holds the content's size.
        self._compressor = zstandard.ZstdCompressor(level=level)
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)

    def compress(self, pieces: Sequence[bytes | memoryview]) -> bytes:
        """Compress all pieces into one frame, each in its own blocks.

        A block has one table of byte frequencies, and those of indices, mantissas and exponents differ.
        """
        frame = self._compressor.compressobj(size=sum(map(len, pieces)))
        filled = [piece for piece in pieces if piece]
        parts = []
        for piece in filled:
            parts.append(frame.compress(piece))
            if piece is not filled[-1]:
                parts.append(frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        parts.append(frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH))
        return b"".join(parts)

    def decompress(self, frame: memoryview, most: int) -> memoryview:
        """Return the content of one frame, at most ``most`` bytes.

        Raises:
            WireError: the content is longer or its size is missing, or this is not exactly one frame.
        """
        try:
            size = zstandard.frame_content_size(frame)
            # zstandard allocates the memory that the frame asks for, whatever limit it is given.
            if not 0 <= size <= most:
                raise WireError(
                    "a compressed body that does not say its size"
                    if size < 0
                    else f"a compressed body of {size} bytes, over the limit of {most}"
                )
            body = self._decompressor.decompress(
                frame, allow_extra_data=False, read_across_frames=False
            )
        except zstandard.ZstdError as error:
            raise WireError(f"a compressed body cannot be read: {error}") from None
        if len(body) != size:
            raise WireError(f"a compressed body of {len(body)} bytes says that it has {size}")
        return memoryview(body)

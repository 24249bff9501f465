"""Images, arrays and idx files, which may be refused by ``DataError``.

A mutant's first byte chooses the reader.
"""

import gzip
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from bench.fuzz.memory_file import MemoryFile
from testbed.errors import DataError
from testbed.learning.data import arrays, idx
from testbed.learning.data.image_files import decoded

_FILE = MemoryFile("data")

TOKENS = (
    *(b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"eXIf", b"Exif\0\0", b"\xff\xd8"),
    *(b"\xff\xda", b"\xff\xc2", b"\xff\xee", b"GIF89a", b"\x21\xf9", b"BM", b"RIFF", b"WEBP"),
    *(b"VP8L", b"II*\0", b"MM\0*", b"P5\n", b"P7\n", b"PK\1\2", b"PK\3\4", b"PK\5\6", b"\x93NUMPY"),
    *(b"'descr': '|O'", b"'shape': (9, 9)", b"train_images.npy", b"\x1f\x8b", b"\0\0\x08\3"),
    *(bytes(8), b"\xff" * 8, b"\x08\0", b"\x10\0", (2**31).to_bytes(4, "little")),
)
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def _picture(mode: str, kind: str) -> bytes:
    draw = np.random.default_rng(5)
    channels = {"RGB": (3,), "RGBA": (4,)}.get(mode, ())
    values = draw.integers(0, 256, (6, 5, *channels)).astype(np.uint8)
    image = Image.fromarray(values)
    made = io.BytesIO()
    (image if image.mode == mode else image.convert(mode)).save(made, kind)
    return made.getvalue()


def _pictures() -> tuple[bytes, ...]:
    by_mode = {
        "L": [kind for kind in _FORMATS if kind != "WEBP"],
        "RGB": list(_FORMATS),
        "P": ["BMP", "GIF", "PNG", "TIFF"],
        "1": ["BMP", "PNG", "PPM", "TIFF"],
    }
    return tuple(_picture(mode, kind) for mode, kinds in by_mode.items() for kind in kinds)


def _array_files() -> tuple[bytes, ...]:
    images, labels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4), np.array([0, 1])
    found = []
    for save in (np.savez, np.savez_compressed):
        made = io.BytesIO()
        save(made, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
        found.append(made.getvalue())
    return tuple(found)


def _idx(dimensions: int) -> bytes:
    shape = (4, 3, 2)[:dimensions]
    head = bytes([0, 0, 8, dimensions]) + b"".join(n.to_bytes(4, "big") for n in shape)
    return head + bytes(range(int(np.prod(shape))))


def _image(path: Path) -> object:
    return decoded(path, path.read_bytes())


_READERS: tuple[tuple[Callable[[Path], object], tuple[bytes, ...]], ...] = (
    (_image, _pictures()),
    (arrays.read, _array_files()),
    (partial(idx.read, dimensions=3), (_idx(3), gzip.compress(_idx(3), mtime=0))),
    (partial(idx.read, dimensions=1), (_idx(1), gzip.compress(_idx(1), mtime=0))),
)


def corpus() -> Sequence[bytes]:
    """Return files of each kind."""
    return [bytes([i]) + file for i, (_, files) in enumerate(_READERS) for file in files]


def check(data: bytes) -> bool:
    """Read a file; return False if it is refused."""
    reads, _ = _READERS[data[0] % len(_READERS) if data else 0]
    path = _FILE.hold(data[1:])
    try:
        found = reads(path)
    except DataError as error:
        assert str(path) in str(error), error
        assert "\n" not in str(error), error
        return False
    parts = (
        found
        if isinstance(found, tuple)
        else (found.values if isinstance(found, idx.IdxFile) else found,)
    )
    assert all(isinstance(one, np.ndarray) and one.dtype == np.uint8 for one in parts)
    return True

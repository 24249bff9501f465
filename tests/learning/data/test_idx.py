"""idx files: valid ones are read, and all others are refused with the place of the error."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import DataError
from testbed.learning.data import idx


def encoded(shape: tuple[int, ...], body: bytes | None = None) -> bytes:
    header = bytes((0, 0, 8, len(shape))) + b"".join(n.to_bytes(4, "big") for n in shape)
    content = bytes(i % 251 for i in range(int(np.prod(shape)))) if body is None else body
    return header + content


@pytest.mark.parametrize("packed", [False, True])
def test_contents_and_checksum_are_read_compressed_or_not(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "images"  # the name does not say whether it is compressed
    content = encoded((3, 4, 5))
    path.write_bytes(gzip.compress(content) if packed else content)
    file = idx.read(path, dimensions=3)
    assert file.values.shape == (3, 4, 5)
    assert file.values.dtype == np.uint8
    assert file.values.ravel().tolist() == [i % 251 for i in range(60)]
    assert file.md5 == "e32095aadae7c7f88f9a56303533ea8b"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "end at byte 0 of 16"),
        (encoded((2, 2, 2))[:10], "byte 10 of 16"),
        (b"\x89PNG" + bytes(30), "0x89504e47 at byte 0"),
        (b"\0\0\x0d\3" + bytes(12), r"type 0x0d \(byte 2\)"),
        (encoded((20,)), "1 dimensions .byte 3. where 3"),
        (encoded((2, 2, 2)) + b"x", "goes on after byte 24"),
    ],
)
def test_a_malformed_file_is_refused_with_the_byte(
    tmp_path: Path, content: bytes, message: str, packed: bool
) -> None:
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=message) as raised:
        idx.read(path, dimensions=3)
    assert str(path) in str(raised.value)


def test_missing_values_in_a_compressed_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_bytes(gzip.compress(encoded((100,), body=bytes(60))))
    with pytest.raises(DataError, match="end at byte 68 of 108"):
        idx.read(path, dimensions=1)


def test_announced_sizes_are_checked_before_memory_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(encoded((2**31, 2**31, 2**31), body=b"few"))
    with pytest.raises(DataError, match=r"more than the file can hold .19 bytes"):
        idx.read(path, dimensions=3)
    path.write_bytes(gzip.compress(encoded((2**31,), body=b"few")))
    with pytest.raises(DataError, match="more than the file can hold"):
        idx.read(path, dimensions=1)


def test_a_broken_gzip_stream_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    values = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8).tobytes()
    whole = gzip.compress(encoded((5000,), body=values))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=f"truncated.*after {len(whole) // 2} bytes"):
        idx.read(path, dimensions=1)
    path.write_bytes(whole[:-4])  # only the trailer is missing
    with pytest.raises(DataError, match="truncated"):
        idx.read(path, dimensions=1)
    changed = bytearray(whole)
    changed[2000] ^= 0xFF
    path.write_bytes(changed)
    with pytest.raises(DataError, match="damaged"):
        idx.read(path, dimensions=1)
    path.write_bytes(whole + b"garbage")
    with pytest.raises(DataError, match="damaged"):
        idx.read(path, dimensions=1)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        idx.read(tmp_path / "nothing", dimensions=1)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        idx.read(tmp_path, dimensions=1)

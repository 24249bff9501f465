"""Image files: each mode and depth, written here byte by byte, is read as it is or refused by name."""

import io
import struct
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from testbed.errors import DataError
from testbed.learning.data import datasets, image_folders
from testbed.learning.data.image_files import decoded

NAME = Path("train", "cat", "one.png")
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}


def png(
    kind: int,
    depth: int,
    values: Sequence[int],
    *,
    palette: bytes = b"",
    transparency: bytes = b"",
    exif: bytes = b"",
    width: int = 2,
) -> bytes:
    """Write a PNG by its specification; ``values`` are of the samples, row by row."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        end = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + end

    samples = width * CHANNELS[kind]
    rows = b""
    for start in range(0, len(values), samples):
        row = "".join(format(value, f"0{depth}b") for value in values[start : start + samples])
        row += "0" * (-len(row) % 8)
        rows += b"\0" + int(row, 2).to_bytes(len(row) // 8, "big")
    height = len(values) // samples
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    found = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    found += chunk(b"PLTE", palette) if palette else b""
    found += chunk(b"tRNS", transparency) if transparency else b""
    found += chunk(b"eXIf", exif) if exif else b""
    return found + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def orientation(value: int) -> bytes:
    """Return EXIF data, big-endian, with one entry."""
    return b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, value, 0, 0)


def tiff(
    samples: bytes, depth: int, channels: int, *, photometric: int, form: int = 1, turned: int = 1
) -> bytes:
    """Write a TIFF of 2 × 2 pixels in one strip, little-endian, not compressed."""
    bits = struct.pack(f"<{channels}H", *[depth] * channels)
    formats = struct.pack(f"<{channels}H", *[form] * channels)
    entries = 10
    extra = 8 + 2 + 12 * entries + 4
    data = bits + formats
    many = channels > 2

    def of(content: bytes, at: int) -> int:
        return extra + at if many else int.from_bytes(content.ljust(4, b"\0"), "little")

    fields = [
        (256, 3, 1, 2),
        (257, 3, 1, 2),
        (258, 3, channels, of(bits, 0)),
        (259, 3, 1, 1),
        (262, 3, 1, photometric),
        (273, 4, 1, extra + len(data)),
        (274, 3, 1, turned),
        (277, 3, 1, channels),
        (279, 4, 1, len(samples)),
        (339, 3, channels, of(formats, len(bits))),
    ]
    directory = struct.pack("<H", entries) + b"".join(struct.pack("<HHII", *one) for one in fields)
    return b"II*\0" + struct.pack("<I", 8) + directory + bytes(4) + data + samples


def read(content: bytes) -> list[list[int]]:
    """Return the values, as a list for each channel."""
    return decoded(NAME, content).reshape(-1, 4).tolist() if content else []


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_grey_of_few_bits_is_scaled_to_white(depth: int) -> None:
    white = 2**depth - 1
    values = [0, white, white // 2, 1]
    expected = [value * 255 // white for value in values]
    assert read(png(GREY, depth, values)) == [expected]


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_a_palette_is_looked_up(depth: int) -> None:
    palette = bytes([10, 20, 30, 200, 0, 7] + [1, 2, 3] * (2**depth - 2))
    found = read(png(PALETTE, depth, [0, 1, 1, 0], palette=palette))
    assert found == [[10, 200, 200, 10], [20, 0, 0, 20], [30, 7, 7, 30]]


@given(st.lists(st.integers(0, 255), min_size=12, max_size=12))
def test_rgb_is_read_as_it_is(values: list[int]) -> None:
    expected = np.array(values).reshape(4, 3).T.tolist()
    assert read(png(RGB, 8, values)) == expected
    ppm = b"P6 2 2 255\n" + bytes(values)
    assert read(ppm) == expected
    assert read(tiff(bytes(values), 8, 3, photometric=2)) == expected
    grey = [[*values[:4]]]
    assert read(b"P5 2 2 255\n" + bytes(values[:4])) == grey
    assert read(tiff(bytes(values[:4]), 8, 1, photometric=1)) == grey
    inverted = bytes(255 - value for value in values[:4])
    assert read(tiff(inverted, 8, 1, photometric=0)) == grey


@pytest.mark.parametrize(("kind", "colours"), [(GREY_ALPHA, 1), (RGBA, 3)])
def test_an_alpha_channel_is_dropped_only_if_all_is_opaque(kind: int, colours: int) -> None:
    pixels = [[*range(10 * i, 10 * i + colours), 255] for i in range(4)]
    flat = [value for pixel in pixels for value in pixel]
    expected = np.array(pixels)[:, :colours].T.tolist()
    assert read(png(kind, 8, flat)) == expected
    flat[-1] = 254
    with pytest.raises(DataError, match=r"one\.png has transparent pixels \(mode (LA|RGBA)\)"):
        read(png(kind, 8, flat))


@pytest.mark.parametrize(
    ("content", "opaque"),
    [
        (png(GREY, 8, [1, 2, 3, 4], transparency=b"\0\x03"), False),
        (png(GREY, 8, [1, 2, 3, 4], transparency=b"\0\x09"), True),
        (png(RGB, 8, [*range(12)], transparency=b"\0\x03\0\x04\0\x05"), False),
        (png(RGB, 8, [*range(12)], transparency=b"\0\x03\0\x04\0\x09"), True),
        (png(PALETTE, 8, [0, 1, 1, 0], palette=bytes(6), transparency=b"\xff\x00"), False),
        (png(PALETTE, 8, [0, 0, 0, 0], palette=bytes(6), transparency=b"\xff\x00"), True),
    ],
)
def test_a_transparent_colour_matters_where_it_occurs(content: bytes, opaque: bool) -> None:
    if opaque:
        read(content)
        return
    with pytest.raises(DataError, match=r"one\.png has transparent pixels"):
        read(content)


FLOATS = struct.pack("<4f", 0.0, 0.5, 1.0, 300.0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (png(GREY, 16, [0, 257, 4096, 65535]), r"values of 16 bits \(mode I;16\)"),
        (png(RGB, 16, [*range(0, 60000, 5000)]), r"values of 16 bits \(mode RGB\)"),
        (png(GREY_ALPHA, 16, [9, 65535] * 4), "values of 16 bits"),
        (png(RGBA, 16, [9, 8, 7, 65535] * 4), "values of 16 bits"),
        (b"P5 2 2 65535\n" + bytes(8), "values of 16 bits"),
        (b"P5 2 2 1023\n" + bytes(8), "values of 10 bits"),
        (b"P6 2 2 65535\n" + bytes(24), "values of 16 bits"),
        (b"P2 2 2 300\n1 2 3 300\n", "values of 9 bits"),
        (b"P3 1 1 300\n1 2 300\n", "values of 9 bits"),
        (b"Pf 2 2 -1.0\n" + FLOATS, r"\(mode F\)"),
        (tiff(struct.pack("<4H", 0, 300, 600, 65535), 16, 1, photometric=1), "values of 16 bits"),
        (tiff(bytes(24), 16, 3, photometric=2), r"values of 16 bits \(mode RGB\)"),
        (tiff(bytes(8), 16, 1, photometric=1, form=2), "values of 16 bits"),
        (tiff(bytes(16), 32, 1, photometric=1, form=2), "values of 32 bits"),
        (tiff(FLOATS, 32, 1, photometric=1, form=3), r"values of 32 bits \(mode F\)"),
        (tiff(bytes(16), 8, 4, photometric=5), "is in the mode CMYK: convert it to grey or RGB"),
        (tiff(bytes(12), 8, 3, photometric=8), "is in the mode LAB"),
    ],
)
def test_what_8_bits_cannot_hold_is_refused_by_name(content: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says) as raised:
        read(content)
    assert str(raised.value).startswith("train/cat/one.png ")
    assert "\n" not in str(raised.value)


def saved(mode: str, format: str, frames: int = 1, size: tuple[int, int] = (2, 2)) -> bytes:
    found = io.BytesIO()
    colours = [Image.new(mode, size, 60 * i) for i in range(frames)]
    colours[0].save(found, format, save_all=frames > 1, append_images=colours[1:])
    return found.getvalue()


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_an_animation_is_refused(format: str) -> None:
    mode = "RGB" if format == "WEBP" else "L"
    assert decoded(NAME, saved(mode, format)).shape[1:] == (2, 2)
    with pytest.raises(DataError, match=r"one\.png has 3 frames: keep one of them"):
        read(saved(mode, format, 3))


def test_cmyk_of_a_photograph_is_refused() -> None:
    with pytest.raises(DataError, match=r"one\.png is in the mode CMYK"):
        read(saved("CMYK", "JPEG"))


TURNS = {
    1: [[1, 2, 3], [4, 5, 6]],
    2: [[3, 2, 1], [6, 5, 4]],
    3: [[6, 5, 4], [3, 2, 1]],
    4: [[4, 5, 6], [1, 2, 3]],
    5: [[1, 4], [2, 5], [3, 6]],
    6: [[4, 1], [5, 2], [6, 3]],
    7: [[6, 3], [5, 2], [4, 1]],
    8: [[3, 6], [2, 5], [1, 4]],
}
"""The rows to show, by the EXIF orientation, of stored rows 1 2 3 and 4 5 6."""


@pytest.mark.parametrize("turned", TURNS)
def test_an_image_is_turned_as_it_says(turned: int) -> None:
    content = png(GREY, 8, [1, 2, 3, 4, 5, 6], width=3, exif=orientation(turned))
    assert decoded(NAME, content)[0].tolist() == TURNS[turned]
    photograph = io.BytesIO()
    Image.new("L", (30, 20)).save(photograph, "JPEG", exif=b"Exif\0\0" + orientation(turned))
    shape = (1, 20, 30) if turned < 5 else (1, 30, 20)
    assert decoded(NAME, photograph.getvalue()).shape == shape


def test_a_tiff_is_turned_once() -> None:
    found = read(tiff(bytes([1, 2, 3, 4]), 8, 1, photometric=1, turned=6))
    assert found == [[3, 1, 4, 2]]


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "BMP", "PPM", "WEBP", "TIFF"])
def test_a_damaged_file_is_named(format: str) -> None:
    """Whatever a decoder raises; a byte may also make another image of it."""
    noise = Image.effect_noise((40, 40), 80).convert("RGB")
    buffer = io.BytesIO()
    noise.save(buffer, format)
    content, generator = buffer.getvalue(), np.random.default_rng(3)
    damaged = [content[:length] for length in range(0, len(content), max(1, len(content) // 60))]
    for _ in range(150):
        changed = bytearray(content)
        for at in generator.integers(0, min(len(content), 400), 3):
            changed[at] = generator.integers(256)
        damaged.append(bytes(changed))
    refused = 0
    for one in damaged:
        try:
            assert decoded(NAME, one).dtype == np.uint8
        except DataError as error:
            refused += 1
            assert str(error).startswith("train/cat/one.png ")
            assert "\n" not in str(error)
            assert "0x" not in str(error)
    assert refused >= 30


@pytest.mark.parametrize("side", [9_000, 40_000])
def test_a_bomb_is_refused_before_it_is_decoded(side: int) -> None:
    content = png(GREY, 8, [0, 0], width=2).replace(
        struct.pack(">II", 2, 1), struct.pack(">II", side, side)
    )
    content = content[:29] + struct.pack(">I", zlib.crc32(content[12:29])) + content[33:]
    with pytest.raises(
        DataError, match=r"one\.png (is of|is no image that can be decoded: .*limit)"
    ):
        read(content)


def folder(path: Path, image: bytes, name: str = "one.png") -> Path:
    for part in ("train", "test"):
        for label in ("cat", "dog"):
            (path / part / label).mkdir(parents=True)
            (path / part / label / "good.png").write_bytes(png(GREY, 8, [1, 2, 3, 4]))
    (path / "train" / "cat" / name).write_bytes(image)
    return path


@pytest.mark.parametrize("name", ["one.heic", "one.TGA", "one.npy"])
def test_an_image_that_would_be_left_out_is_named(tmp_path: Path, name: str) -> None:
    place = folder(tmp_path, b"", name)
    with pytest.raises(DataError, match=rf"train/cat/{name} is not read: images are .*\.png"):
        datasets.load(str(place))


def test_a_folder_is_refused_by_the_name_of_its_odd_image(tmp_path: Path) -> None:
    place = folder(tmp_path, png(GREY, 16, [0, 257, 4096, 65535]))
    with pytest.raises(DataError, match=r"train/cat/one\.png has values of 16 bits"):
        datasets.load(str(place))


def archive(path: Path, names: Sequence[str], image: bytes = png(GREY, 8, [1, 2, 3, 4])) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(image)
            file.addfile(member, io.BytesIO(image))
    return path


def test_an_archive_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    place = archive(tmp_path / "a.tar.gz", ["train/a/1.png", "test/a/1.png", "train/a/1.png"])
    with pytest.raises(DataError, match=r"a\.tar\.gz has train/a/1\.png twice"):
        image_folders.index(place)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train/a/2.png", tarfile.LNKTYPE),
        ("./train/a/2.png", tarfile.SYMTYPE),
        ("train/b", tarfile.SYMTYPE),
        ("test", tarfile.SYMTYPE),
    ],
)
def test_an_archive_with_a_link_in_place_of_images_is_refused(
    tmp_path: Path, name: str, kind: bytes
) -> None:
    place = archive(tmp_path / "a.tar", ["train/a/1.png", "val/a/1.png"])
    with tarfile.open(place) as file, tarfile.open(tmp_path / "b.tar", "w") as other:
        for member in file:
            other.addfile(member, file.extractfile(member))
        link = tarfile.TarInfo(name)
        link.type, link.linkname = kind, "train/a/1.png"
        other.addfile(link)
    with pytest.raises(DataError, match=rf"b\.tar has a link, {name.removeprefix('./')}, and"):
        image_folders.index(tmp_path / "b.tar")


def test_a_member_that_unpacks_to_too_much_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_folders, "_LARGEST", 60)
    place = archive(tmp_path / "a.tar.gz", ["train/a/1.png", "test/a/1.png"])
    with pytest.raises(DataError, match=r"a\.tar\.gz/\S+ has \d+ bytes, and 60 are the most"):
        image_folders.index(place).images(None)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    place = archive(tmp_path / "a.tar.gz", ["train/a/1.png", "test/a/1.png"])
    content = place.read_bytes()
    generator = np.random.default_rng(4)
    damaged = [content[:length] for length in range(0, len(content), 3)]
    for _ in range(200):
        changed = bytearray(content)
        changed[generator.integers(len(content))] ^= 1 << generator.integers(8)
        damaged.append(bytes(changed))
    for one in damaged:
        place.write_bytes(one)
        try:
            image_folders.index(place).images(None)
        except DataError as error:
            assert str(place) in str(error)

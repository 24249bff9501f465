"""Encodings: decoding returns what was encoded, and refuses what no encoder could have written."""

import contextlib
import itertools
import struct
import tracemalloc
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from testbed.encoding_choice import Compression, EncodingChoice, Indices, Values
from testbed.training.slices import slices
from testbed.updates import DenseUpdate, Layout, SparseUpdate, Update
from testbed.wire import WireError
from testbed.wire.bits import varint, varint_size
from testbed.wire.encodings import DENSE, Codec, describe
from tests.many_examples import many

SIZES = (3, 1, 150, 40, 6)
SIZE = sum(SIZES)
PLAIN = EncodingChoice(indices="uint32")
CHOICES = [
    EncodingChoice(indices=indices, values=values, compression=compression)
    for indices, values, compression in itertools.product(
        get_args(Indices), get_args(Values), get_args(Compression)
    )
]
CODECS = {choice: Codec(choice, SIZES) for choice in CHOICES}
choices = st.sampled_from(CHOICES)
floats = st.floats(width=32, allow_nan=True)


@st.composite
def sparse_updates(draw: st.DrawFn) -> SparseUpdate:
    """Draw a sparse update: scattered, clustered, empty or full."""
    chosen = draw(st.sets(st.integers(0, SIZE - 1)))
    if draw(st.booleans()):
        start = draw(st.integers(0, SIZE))
        chosen |= set(range(start, draw(st.integers(start, SIZE))))
    indices = np.array(sorted(chosen), np.uint32)
    return SparseUpdate(indices, draw(hnp.arrays(np.float32, len(indices), elements=floats)))


dense_updates = st.builds(DenseUpdate, hnp.arrays(np.float32, SIZE, elements=floats))


def body_of(codec: Codec, update: Update) -> tuple[int, memoryview]:
    encoding, pieces = codec.encode(update)
    return encoding, memoryview(b"".join(pieces))


@settings(deadline=None)
@given(choices, sparse_updates() | dense_updates)
def test_decoding_returns_the_encoded_update(choice: EncodingChoice, update: Update) -> None:
    codec = CODECS[choice]
    encoding, body = body_of(codec, update)
    assert codec.measure(update) == len(body) <= codec.longest
    again = codec.decode(encoding, body)
    received = codec.rounded(update)
    assert type(again) is type(received) is type(update)
    assert again.values.dtype == np.float32
    assert again.values.tobytes() == received.values.tobytes()
    if isinstance(update, SparseUpdate):
        assert isinstance(again, SparseUpdate)
        assert again.indices.dtype == np.uint32
        assert again.indices.tolist() == update.indices.tolist()
    if choice.values == "float32":
        assert received is update
        assert not codec.lossy
    check_rounding(choice, update.values, again.values)


def check_rounding(
    choice: EncodingChoice, sent: npt.NDArray[np.float32], got: npt.NDArray[np.float32]
) -> None:
    assert (np.isnan(got) == (np.isnan(sent) | (np.isinf(sent) & (choice.values == "int8")))).all()
    finite = np.isfinite(sent)
    assert np.isfinite(got[finite]).all()
    if choice.values != "int8":
        assert (got[np.isinf(sent)] == sent[np.isinf(sent)]).all()
    exact, read = sent[finite].astype(np.float64), got[finite].astype(np.float64)
    if choice.values == "float16":
        clipped = np.clip(exact, -65504, 65504)
        assert (np.abs(read - clipped) <= np.maximum(np.abs(clipped) * 2.0**-11, 2.0**-25)).all()
    elif choice.values == "bfloat16":
        largest = float(np.uint32(0x7F7F0000).view(np.float32))
        clipped = np.clip(exact, -largest, largest)
        assert (np.abs(read - clipped) <= np.maximum(np.abs(clipped) * 2.0**-8, 2.0**-134)).all()


@given(st.integers(0, 2**32 - 1))
def test_the_size_of_a_varint_is_its_length(number: int) -> None:
    assert varint_size(number) == len(varint(number))


def test_int8_is_within_half_a_step_of_its_block() -> None:
    codec = Codec(EncodingChoice(values="int8"), (1000,))
    rng = np.random.default_rng(1)
    values = (rng.normal(size=1000) * np.exp(rng.normal(size=1000) * 5)).astype(np.float32)
    read = codec.rounded(DenseUpdate(values)).values
    for start in range(0, 1000, 64):
        block, got = values[start : start + 64], read[start : start + 64]
        # A scale is rounded up by at most 2⁻⁷ of itself.
        step = np.abs(block).max() / 127 * (1 + 2**-7)
        assert np.abs(block - got).max() <= step / 2 * 1.0001
        assert np.abs(got).max() <= np.abs(block).max() * (1 + 2**-7)


@given(choices, st.sets(st.integers(0, 99_999), max_size=300), st.integers(0, 99_999))
def test_the_measured_size_is_the_encoded_size(
    choice: EncodingChoice, chosen: set[int], start: int
) -> None:
    """Try long and short gaps, and tensors that have no entry."""
    chosen |= set(range(start, min(start + 300, 100_000)))
    indices = np.array(sorted(chosen), np.uint32)
    update = SparseUpdate(indices, np.zeros(len(indices), np.float32))
    codec = Codec(choice, (90_000, 10, 9_000, 990))
    assert codec.measure(update) == len(body_of(codec, update)[1])


@given(sparse_updates())
def test_auto_chooses_a_range_the_bitmap_or_the_shortest_coding(update: SparseUpdate) -> None:
    lengths = {
        choice.indices: len(body_of(CODECS[choice], update)[1])
        for choice in CHOICES
        if choice.values == "float32" and choice.compression == "none"
    }
    auto = lengths.pop("auto")
    steps = np.diff(update.indices)
    if len(update.indices) and (steps == 1).all():
        assert auto == 4 * len(update.indices) + varint_size(int(update.indices[0]))
        assert auto <= min(lengths.values())
    elif 4 * len(update.indices) > SIZE:
        assert auto == lengths["bitmap"]
    else:
        del lengths["gaps"]
        assert auto == min(lengths.values())


def test_float16_equals_numpy_s_but_for_overflows() -> None:
    rng = np.random.default_rng(1)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    for values in (
        rng.integers(0, 2**32, 1 << 20, np.uint32).view(np.float32),
        (rng.normal(size=1 << 20) * 10 ** rng.uniform(-9, 5, 1 << 20)).astype(np.float32),
        halves,
        -(halves[1:] + halves[:-1]) / np.float32(2),  # ties, which are rounded to even
    ):
        codec = Codec(EncodingChoice(values="float16"), (len(values),))
        read = codec.rounded(DenseUpdate(values)).values
        with np.errstate(over="ignore"):
            expected = values.astype(np.float16).astype(np.float32)
        beyond = np.isinf(expected) & np.isfinite(values)
        assert np.array_equal(read[~beyond], expected[~beyond], equal_nan=True)
        assert (np.abs(read[beyond]) == 65504).all()
        numbers = ~np.isnan(values)
        assert (np.signbit(read) == np.signbit(values))[numbers].all()


def test_zstd_is_used_only_where_it_is_shorter() -> None:
    codec = Codec(EncodingChoice(compression="zstd"), SIZES)
    encoding, body = body_of(codec, DenseUpdate(np.zeros(SIZE, np.float32)))
    assert describe(encoding) == "dense float32 zstd"
    assert len(body) < 40
    noise = np.random.default_rng(1).integers(0, 2**32, SIZE, np.uint32).view(np.float32)
    encoding, body = body_of(codec, DenseUpdate(noise))
    assert describe(encoding) == "dense float32"
    assert len(body) == 4 * SIZE


def test_formats_are_as_documented() -> None:
    indices = np.array([1, 4, 5, 199], np.uint32)
    values = np.array([1, -2, 0.5, 3], np.float32)
    update = SparseUpdate(indices, values)

    def bytes_of(**fields: object) -> tuple[int, bytes]:
        encoding, body = body_of(Codec(EncodingChoice.model_validate(fields), (200,)), update)
        return encoding, bytes(body)

    floats32 = values.tobytes()
    assert bytes_of(indices="uint32") == (2, indices.tobytes() + floats32)
    # One group of 4 numbers, 8 bits each: 1, 2, 0, 193.
    assert bytes_of(indices="gaps") == (3, bytes([0, 4, 8, 1, 2, 0, 193]) + floats32)
    # Mean 49: 32 is 2⁵. Unary 0, 0, 0, 6: 1110000001; then 1, 2, 0, 1 in 5 bits each.
    rice = bytes([0, 4, 6 - 1, 0b0000111, 0b10, 0b01000001, 0b10000000, 0]) + floats32
    assert bytes_of(indices="rice") == (4, rice)
    # 200 / 4 = 50: 5 low bits. Upper parts 0, 0, 0, 6.
    low = sum(int(i & 31) << (5 * n) for n, i in enumerate(indices)).to_bytes(3, "little")
    assert bytes_of(indices="elias-fano") == (5, bytes([4, 0b0000111, 0b10]) + low + floats32)
    gap_bytes = bytes([4, 0, 1, 2, 0, 193]) + floats32
    assert bytes_of(indices="gap-bytes") == (7, gap_bytes)
    bitmap = bytes([0b110010]) + bytes(23) + bytes([0b10000000])
    assert bytes_of(indices="bitmap") == (6, bitmap + floats32)
    plain = indices.tobytes()
    assert bytes_of(indices="uint32", values="float16") == (
        2 | 1 << 3,
        plain + struct.pack("<4e", *values),
    )
    brain = b"".join(struct.pack("<f", v)[2:] for v in values)
    assert bytes_of(indices="uint32", values="bfloat16") == (2 | 2 << 3, plain + brain)
    # 3 / 127, rounded up to a bfloat16, is 0x3CC2: 0.02368.
    assert bytes_of(indices="uint32", values="int8") == (
        2 | 3 << 3,
        plain + bytes([0xC2, 0x3C]) + struct.pack("4b", 42, -84, 21, 127),
    )


def test_gap_bytes_write_long_distances_after_the_short_ones() -> None:
    indices = np.array([300, 301, 70_301], np.uint32)
    codec = Codec(EncodingChoice(indices="gap-bytes"), (100_000,))
    encoding, body = body_of(codec, SparseUpdate(indices, np.zeros(3, np.float32)))
    low, middle, high = zip(*((n - 255).to_bytes(3, "little") for n in (300, 69_999)), strict=True)
    assert bytes(body[:-12]) == bytes([3, 3, 255, 0, 255, *low, *middle, *high])
    update = codec.decode(encoding, body)
    assert isinstance(update, SparseUpdate)
    assert update.indices.tolist() == indices.tolist()


@pytest.mark.parametrize("values", get_args(Values))
@pytest.mark.parametrize("compression", get_args(Compression))
@pytest.mark.parametrize(("first", "stop"), [(0, 1), (0, 3_000), (130, 2_999), (2_999, 3_000)])
def test_a_range_costs_its_first_index(
    values: Values, compression: Compression, first: int, stop: int
) -> None:
    codec = Codec(EncodingChoice(values=values, compression=compression), (1_000, 2_000))
    indices = np.arange(first, stop, dtype=np.uint32)
    noise = np.random.default_rng(1).normal(size=len(indices)).astype(np.float32)
    encoding, body = body_of(codec, SparseUpdate(indices, noise))
    exact = Codec(EncodingChoice(values=values), (len(indices),))
    of_values = body_of(exact, DenseUpdate(noise))[1]
    assert encoding & 7 == RANGE
    assert len(body) <= varint_size(first) + len(of_values)
    if not encoding & ZSTD:
        assert bytes(body) == varint(first) + of_values
    again = codec.decode(encoding, body)
    assert isinstance(again, SparseUpdate)
    assert again.indices.tolist() == indices.tolist()


def test_parts_of_a_range_are_ranges_at_each_of_several_servers() -> None:
    """As where a part of the gradient crosses the border of two servers' slices."""
    layout = Layout(("a", "b"), (700, 300))
    update = SparseUpdate(np.arange(200, 650, dtype=np.uint32), np.ones(450, np.float32))
    cut = slices(layout, 3)  # at 333 and 666
    costs = [
        Codec(EncodingChoice(), part.layout.sizes).measure(part.of(update))
        - 4 * len(part.of(update).values)
        for part in cut
    ]
    assert costs == [varint_size(200), varint_size(0), 0]


def test_groups_per_tensor_are_used_where_they_are_shorter() -> None:
    rng = np.random.default_rng(1)
    sparse_part = rng.choice(10_000, 100, replace=False)
    dense_part = 10_000 + rng.choice(1000, 500, replace=False)
    indices = np.sort(np.concatenate((sparse_part, dense_part))).astype(np.uint32)
    update = SparseUpdate(indices, np.zeros(600, np.float32))
    for name in ("gaps", "rice"):
        choice = EncodingChoice.model_validate({"indices": name})
        one = body_of(Codec(choice, (11_000,)), update)[1]
        two = body_of(Codec(choice, (10_000, 1000)), update)[1]
        assert one[0] == 0
        assert two[0] == 1
        assert len(two) < len(one) - 10


def test_a_dense_gradient_is_not_copied() -> None:
    values = np.zeros(SIZE, np.float32)
    encoding, (piece,) = Codec(EncodingChoice(), SIZES).encode(DenseUpdate(values))
    assert encoding == DENSE
    assert np.shares_memory(np.frombuffer(piece, np.uint8), values)
    read = Codec(EncodingChoice(), SIZES).decode(DENSE, memoryview(piece))
    assert np.shares_memory(read.values, values)


def sparse(*indices: int) -> bytes:
    return np.array(indices, "<u4").tobytes() + np.zeros(len(indices), "<f4").tobytes()


def coded(*head: int, entries: int = 0) -> bytes:
    return bytes(head) + bytes(4 * entries)


RANGE, GAPS, RICE, ELIAS_FANO, BITMAP, GAP_BYTES, ZSTD = 0, 3, 4, 5, 6, 7, 64
BITMAP_SIZE = SIZE // 8


@pytest.mark.parametrize(
    ("encoding", "body", "reason"),
    [
        (DENSE, bytes(4 * SIZE - 4), "dense update of 796 bytes"),
        (DENSE, bytes(4 * SIZE + 1), "dense update of 801 bytes"),
        (2, bytes(9), "sparse update of 9 bytes"),
        (2, sparse(*range(SIZE + 1)), "sparse update of 1608 bytes"),
        (2, sparse(3, SIZE), "ascending and in range"),
        (2, sparse(3, 2), "ascending and in range"),
        (2, sparse(3, 3), "ascending and in range"),
        (2, sparse(2**32 - 1), "ascending and in range"),
        (RANGE, b"", "ends in the middle of a number"),
        (RANGE, coded(0x83), "ends in the middle of a number"),
        (RANGE, coded(0x83, 0, entries=1), "longer than it need be"),
        (RANGE, coded(3), "a range of 0 entries from 3 on, of 200 parameters"),
        (RANGE, coded(0, 1, 2, entries=5), "sparse update of 22 bytes"),
        (RANGE, coded(1, entries=SIZE), "a range of 200 entries from 1 on"),
        (RANGE, coded(0xC8, 1, entries=1), "a range of 1 entries from 200 on"),
        (RANGE, coded(0xFF, 0xFF, 0xFF, 0xFF, 0x0F, entries=2), "a range of 2 entries"),
        (GAPS, b"", "neither the model nor its tensors"),
        (GAPS, coded(2), "neither the model nor its tensors"),
        (GAPS, coded(0, 1), "width of a group is missing"),
        (GAPS, coded(0, 1, 9, 0, entries=1), "width of a group is missing or too large"),
        (GAPS, coded(0, 0x80), "ends in the middle of a number"),
        (GAPS, coded(0, 0x81, 0), "longer than it need be"),
        (GAPS, coded(0, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0), "too large"),
        (GAPS, coded(0, 0xC9, 1, 0, entries=201), "more entries than parameters"),
        (GAPS, coded(1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, entries=4), "more entries than parameters"),
        (GAPS, coded(0, 2, 4, 0x11), "says that it has 2 entries"),
        (GAPS, coded(0, 2, 4, 0x11, 0, entries=2), "2 packed distances in 2 bytes"),
        (GAPS, coded(0, 1, 4, 0x11, entries=1), "padding after packed numbers"),
        (GAPS, coded(0, 2, 8, 199, 0, entries=2), "ascending and in range"),
        (GAPS, coded(1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, entries=2), "more entries than"),
        (GAPS, coded(1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3, entries=1), "ascending and in range"),
        (RICE, coded(0, 1, 8, 3, 0, entries=1), "2 unary numbers in 1 bytes, expected 1"),
        (RICE, coded(0, 1, 8, 1, 0, 0, entries=1), "1 unary numbers in 2 bytes, expected 1"),
        (RICE, coded(0, 1, 8, 2, 0, entries=1), "ascending and in range"),
        (RICE, coded(0, 1, 0, *bytes(30), 1, entries=1), "Rice-coded distances in 31 bytes"),
        (RICE, coded(0, 0, 0, 1), "1 unary numbers in 1 bytes, expected 0"),
        (RICE, coded(0, 1, 8, entries=1), "1 Rice-coded distances in 0 bytes"),
        (ELIAS_FANO, coded(0, 0), "0 unary numbers in 1 bytes, expected 0"),
        (ELIAS_FANO, coded(1, 3, 0, entries=1), "2 unary numbers"),
        (ELIAS_FANO, coded(1, 1, 200, entries=1), "padding|ascending"),
        (ELIAS_FANO, coded(1, 4, 0, entries=1), "ascending and in range"),
        (ELIAS_FANO, coded(2, 3, 0x45, 0x01, entries=2), "ascending and in range"),
        (ELIAS_FANO, coded(0xC9, 1, entries=201), "says that it has 201 entries"),
        (ELIAS_FANO, coded(1, *bytes(9), entries=1), "1 Elias-Fano coded indices in 9 bytes"),
        (BITMAP, bytes(BITMAP_SIZE - 1), "a bitmap of 24 bytes"),
        (BITMAP, bytes([1]) + bytes(BITMAP_SIZE - 1), "says that it has 1 entries"),
        (BITMAP, bytes(BITMAP_SIZE + 4), "4 bytes too many after a bitmap"),
        (GAP_BYTES, b"", "ends in the middle of a number"),
        (GAP_BYTES, coded(0), "says that it has 0 entries"),
        (GAP_BYTES, coded(1, 0, entries=1), "1 distances in bytes, 0 of them long, in 0 bytes"),
        (GAP_BYTES, coded(1, 5, 0, entries=1), "1 distances in bytes, 0 of them long, in 1 bytes"),
        (GAP_BYTES, coded(1, 1, 255, entries=1), "1 of them long, in 1 bytes"),
        (GAP_BYTES, coded(1, 1, 255, 0, entries=1), "ascending and in range"),
        (GAP_BYTES, coded(1, 4, 255, 0, 0, 0, 255, entries=1), "ascending and in range"),
        (GAP_BYTES, coded(2, 0, 199, 0, entries=2), "ascending and in range"),
        (128 | DENSE, b"", r"encoded as unknown \(129\)"),
        (32 | DENSE, b"", r"encoded as unknown \(33\)"),
        (8 | DENSE, b"", "encoded as dense float16"),
        (ZSTD | RICE, b"", "encoded as rice float32 zstd"),
    ],
)
def test_a_malformed_body_is_refused(encoding: int, body: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        Codec(EncodingChoice(), SIZES).decode(encoding, memoryview(body))


def test_only_the_run_s_encoding_is_read() -> None:
    update = SparseUpdate(np.array([5], np.uint32), np.ones(1, np.float32))
    sent = {choice: body_of(CODECS[choice], update) for choice in CHOICES}
    for theirs, ours in itertools.product(CHOICES, CHOICES):
        encoding, body = sent[theirs]
        allowed = theirs.values == ours.values and (
            ours.indices == "auto" or encoding & 7 == sent[ours][0] & 7
        )
        if allowed and not (encoding & ZSTD and ours.compression == "none"):
            CODECS[ours].decode(encoding, body)
        else:
            with pytest.raises(WireError, match=f"this run's encoding is {ours.name}"):
                CODECS[ours].decode(encoding, body)


@pytest.mark.parametrize("scale", [0x7F80, 0x7FC0, 0x8000, 0xFFFF])
def test_scales_that_are_negative_or_not_finite_are_refused(scale: int) -> None:
    codec = Codec(EncodingChoice(values="int8"), (4,))
    body = struct.pack("<H4b", scale, 1, 2, 3, 4)
    with pytest.raises(WireError, match="scale of a block"):
        codec.decode(DENSE | 3 << 3, memoryview(body))


def zstd(body: bytes, write_content_size: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=write_content_size).compress(body)


BOMB = zstd(bytes(1 << 30))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "cannot be read"),
        (b"no frame at all", "cannot be read"),
        (zstd(bytes(4 * SIZE))[:-1], "cannot be read"),
        (zstd(bytes(4 * SIZE)) + b"x", "cannot be read"),
        (zstd(bytes(4 * SIZE)) * 2, "cannot be read"),
        (zstd(bytes(4 * SIZE), write_content_size=False), "does not say its size"),
        (BOMB, "1073741824 bytes, over the limit"),
        (zstd(b""), "dense update of 0 bytes"),
        (zstd(bytes(4 * SIZE - 4)), "dense update of 796 bytes"),
        (b"\x50\x2a\x4d\x18\x04\0\0\0abcd", "cannot be read|dense update of 0 bytes"),
    ],
)
def test_anything_but_one_zstd_frame_of_possible_size_is_refused(frame: bytes, reason: str) -> None:
    codec = Codec(EncodingChoice(compression="zstd"), SIZES)
    tracemalloc.start()
    with pytest.raises(WireError, match=reason):
        codec.decode(ZSTD | DENSE, memoryview(frame))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def check_hostile(codec: Codec, encoding: int, body: bytes) -> None:
    """Check that a body is refused or decodes to an update of this model."""
    try:
        update = codec.decode(encoding, memoryview(body))
    except WireError:
        return
    assert update.values.dtype == np.float32
    if isinstance(update, SparseUpdate):
        assert update.indices.dtype == np.uint32
        assert len(update.indices) == len(update.values)
        assert np.all(np.diff(update.indices.astype(np.int64)) > 0)
        assert len(update.indices) == 0 or update.indices[-1] < SIZE
    else:
        assert len(update.values) == SIZE


@many(500)
@given(choices, st.integers(0, 255), st.binary(max_size=300))
def test_noise_is_refused_or_fits_the_model(
    choice: EncodingChoice, encoding: int, noise: bytes
) -> None:
    check_hostile(CODECS[choice], encoding, noise)
    for code in range(8):  # most encodings would be refused by their byte alone
        check_hostile(CODECS[choice], CODECS[choice].encode(EMPTY)[0] & 0x38 | code, noise)


EMPTY = SparseUpdate(np.zeros(0, np.uint32), np.zeros(0, np.float32))


@many(1000)
@given(choices, sparse_updates() | dense_updates, st.data())
def test_a_damaged_body_is_refused_or_fits_the_model(
    choice: EncodingChoice, update: Update, data: st.DataObject
) -> None:
    encoding, body = body_of(CODECS[choice], update)
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        # Most of what can go wrong is at the beginning.
        at = data.draw(st.integers(0, min(12, len(damaged))) | st.integers(0, len(damaged)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "set"])):
            case "flip" if at < len(damaged):
                damaged[at] ^= 1 << data.draw(st.integers(0, 7))
            case "set" if at < len(damaged):
                damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            case "cut":
                del damaged[at : at + data.draw(st.integers(1, 9))]
            case "insert":
                damaged[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    check_hostile(CODECS[choice], encoding, bytes(damaged))


@pytest.mark.parametrize("indices", get_args(Indices))
def test_a_damaged_body_takes_no_more_memory_than_the_model_allows(indices: Indices) -> None:
    total = 200_000
    codec = Codec(EncodingChoice(indices=indices), (total - 1000, 1000))
    rng = np.random.default_rng(1)
    chosen = np.sort(rng.choice(total, 3000, replace=False)).astype(np.uint32)
    encoding, body = body_of(codec, SparseUpdate(chosen, np.ones(3000, np.float32)))
    tracemalloc.start()
    for n in range(60):
        damaged = bytearray(body)
        damaged[n % 20 if n < 40 else rng.integers(len(body))] ^= 1 << int(rng.integers(8))
        with contextlib.suppress(WireError):
            codec.decode(encoding, memoryview(damaged))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * total

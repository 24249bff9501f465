"""Frames are the same for any cutting of the stream, and anything that is no frame is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.wire import WireError
from testbed.wire.frames import HEADER, Kind, Receiver, header

ACCEPTS = {Kind.PULL: 0, Kind.PUSH: 300}
SCRATCH = 256


def receiver(accepts: dict[Kind, int] | None = None) -> Receiver:
    return Receiver(ACCEPTS if accepts is None else accepts, memoryview(bytearray(SCRATCH)))


def feed(to: Receiver, data: bytes, cuts: list[int]) -> list[tuple[Kind, int, bytes]]:
    frames = []
    while data:
        buffer = to.buffer()
        count = min(len(buffer), len(data), cuts.pop(0) if cuts else len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        frames += [(f.kind, f.number, bytes(f.body)) for f in to.received(count)]
    return frames


messages = st.one_of(
    st.tuples(st.just(Kind.PULL), st.just(0), st.just(b"")),
    st.tuples(st.just(Kind.PUSH), st.integers(0, 2**64 - 1), st.binary(max_size=300)),
)


@given(st.lists(messages, max_size=8), st.lists(st.integers(1, 200)))
def test_any_cutting_gives_the_same_frames(
    sent: list[tuple[Kind, int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(header(k, n, length=len(body)) + body for k, n, body in sent)
    reading = receiver()
    assert feed(reading, stream, cuts) == sent
    assert reading.between_frames


def test_a_frame_cut_short_is_detected() -> None:
    reading = receiver()
    feed(reading, header(Kind.PUSH, 1, length=10) + b"12345", [])
    assert not reading.between_frames
    assert reading.missing == 5


@given(st.binary(min_size=32, max_size=64))
def test_noise_is_refused_or_is_a_frame(noise: bytes) -> None:
    try:
        frames = feed(receiver(), noise, [])
    except WireError:
        return
    assert all(kind in ACCEPTS for kind, _, _ in frames)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", "not the testbed's protocol"),
        (HEADER.pack(b"TB", 2, Kind.PULL, 0, 0, 0, 0, 0), "protocol version 2"),
        (HEADER.pack(b"TB", 1, 99, 0, 0, 0, 0, 0), "kind 99"),
        (header(Kind.STOP), "allowed now: PULL, PUSH"),
        (header(Kind.PUSH, length=301), "over the limit of 300"),
        (header(Kind.PUSH, length=2**64 - 1), "over the limit of 300"),
        (HEADER.pack(b"TB", 1, Kind.PULL, 0, 0, 0, 7, 0), "reserved"),
        (b"TB\x01\x03\x00\x01" + bytes(26), "reserved"),
    ],
)
def test_a_bad_header_is_refused(head: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        feed(receiver(), head, [])


def test_a_refused_length_takes_no_memory() -> None:
    reading = receiver()
    with pytest.raises(WireError):
        feed(reading, header(Kind.PUSH, length=2**62), [])
    assert len(reading._body) == 0


def test_the_header_is_as_documented() -> None:
    head = header(Kind.PUSH, 0x0102030405060708, encoding=2, loss=1.5, length=9)
    assert len(head) == 32
    assert head[:5] == b"TB\x01\x05\x02"
    assert head[8:16] == bytes(range(8, 0, -1))
    assert struct.unpack_from("<f", head, 16) == (1.5,)
    assert struct.unpack_from("<Q", head, 24) == (9,)
    assert head[20:24] == bytes(4)
    assert header(Kind.PUSH, count=5)[20:24] == b"\x05\0\0\0"


def test_a_push_may_say_how_many_updates_its_sum_has() -> None:
    reading = receiver()
    data = header(Kind.PUSH, 3, count=5, length=4) + b"1234" + header(Kind.PUSH)
    reading.buffer()[: len(data)] = data
    assert [frame.count for frame in reading.received(len(data))] == [5, 0]

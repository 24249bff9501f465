"""The positions of TCP streams, against the set of the bytes that were seen."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traffic.tcp_streams import Positions

STREAMS = 3


class Oracle:
    """One stream, as the set of the bytes that were seen."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def take(self, start: int, length: int) -> int:
        # Bytes before the stream's first one do not belong to it.
        fresh = {b for b in range(start, start + length) if b >= 0} - self.seen
        self.seen |= fresh
        return len(fresh)

    @property
    def missing(self) -> int:
        return max(self.seen, default=-1) + 1 - len(self.seen)

    @property
    def whole(self) -> int:
        return next(b for b in range(len(self.seen) + 1) if b not in self.seen)


PACKETS = st.lists(
    st.tuples(
        st.integers(0, STREAMS - 1),
        st.one_of(st.just(None), st.integers(-30, 400)),  # None: where its last packet ended
        st.integers(1, 60),
    ),
    max_size=60,
)


@given(
    PACKETS,
    st.lists(
        st.integers(0, 2**32 - 1) | st.integers(2**32 - 300, 2**32 - 1),
        min_size=STREAMS,
        max_size=STREAMS,
    ),
    st.sets(st.integers(1, 60), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_every_byte_is_new_once(
    packets: list[tuple[int, int | None, int]], firsts: list[int], cuts: set[int]
) -> None:
    ends = [0] * STREAMS
    oracles = [Oracle() for _ in range(STREAMS)]
    rows, expected = [], []
    for stream, place, length in packets:
        start = ends[stream] if place is None else place
        ends[stream] = start + length
        rows.append((stream, (firsts[stream] + start) % 2**32, length))
        expected.append((oracles[stream].take(start, length), start))
    positions = Positions()
    positions.begin(np.array(firsts[:1]))
    positions.begin(np.array(firsts[1:]))
    found: list[tuple[int, int]] = []
    bounds = [0, *sorted(c for c in cuts if c < len(rows)), len(rows)]
    for a, b in pairwise(bounds):
        columns = np.array(rows[a:b], np.int64).reshape(-1, 3).T
        found += zip(*(one.tolist() for one in positions.advance(*columns)), strict=True)
    assert found == expected
    assert positions.missing.tolist() == [oracle.missing for oracle in oracles]
    assert positions.whole.tolist() == [oracle.whole for oracle in oracles]


def test_a_stream_may_be_longer_than_the_sequence_numbers() -> None:
    positions = Positions()
    positions.begin(np.array([7]))
    length = 2**20
    for batch in range(3):  # 12 GiB in packets of 1 MiB
        at = np.arange(4096, dtype=np.int64) + batch * 4096
        sequence = (7 + at * length) % 2**32
        new, _ = positions.advance(np.zeros(4096, np.int64), sequence, np.full(4096, length))
        assert new.sum() == 4096 * length
    assert positions.missing.tolist() == [0]


def test_many_streams_with_large_gaps_may_be_in_one_batch() -> None:
    """More than 2¹³ streams, each with a gap of about a GiB, after which it goes on."""
    count = 20_000
    positions = Positions()
    positions.begin(np.zeros(count, np.int64))
    stream = np.repeat(np.arange(count), 3)
    sequence = np.tile([0, 2**30, 2**30 + 50], count)
    new, _ = positions.advance(stream, sequence, np.tile([100, 100, 100], count))
    assert new.reshape(-1, 3).tolist() == [[100, 100, 50]] * count
    assert set(positions.missing.tolist()) == {2**30 - 100}


@given(
    st.integers(0, 2**32 - 1),
    st.dictionaries(st.integers(1, 58), st.integers(25, 31), max_size=20),
    st.sets(st.integers(1, 90), max_size=6),
)
def test_a_packet_with_a_damaged_sequence_number_is_none_of_the_stream(
    first: int, flipped: dict[int, int], cuts: set[int]
) -> None:
    """Each is sent again two packets later; the bits that netem flips are mostly those of headers."""
    # Two in a row with the same bit would look like a stream that goes on there.
    flipped = {number: bit for number, bit in flipped.items() if flipped.get(number - 1) != bit}
    length, rows, expected = 1448, [], []
    for number in range(62):
        whole = (first + number * length) % 2**32
        damaged = number in flipped
        rows.append((0, whole ^ (1 << flipped[number]) if damaged else whole, length))
        expected.append(0 if damaged else length)
        if number - 2 in flipped:
            rows.append((0, (first + (number - 2) * length) % 2**32, length))
            expected.append(length)
    positions = Positions()
    positions.begin(np.array([first]))
    found: list[int] = []
    bounds = [0, *sorted(c for c in cuts if c < len(rows)), len(rows)]
    for a, b in pairwise(bounds):
        found += positions.advance(*np.array(rows[a:b], np.int64).reshape(-1, 3).T)[0].tolist()
    assert found == expected
    assert positions.missing.tolist() == [0]
    assert positions.end.tolist() == [62 * length]


def test_a_stream_with_a_hundred_thousand_gaps_is_followed_quickly() -> None:
    """Filled from the end: quadratic work would take minutes."""
    count = 100_000
    positions = Positions()
    positions.begin(np.array([0]))
    zero = np.zeros(count, np.int64)
    odd = np.arange(count, dtype=np.int64) * 20 + 10
    assert positions.advance(zero, odd, zero + 10)[0].sum() == 10 * count
    assert positions.missing.tolist() == [10 * count]
    assert positions.advance(zero, odd[::-1] - 10, zero + 10)[0].sum() == 10 * count
    assert positions.missing.tolist() == [0]

"""The bytes that a stream takes on the wire, against a count segment by segment."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.network.segments import HEADERS, SEGMENT, wire_bytes


@settings(deadline=None)  # the host may be busy
@given(st.integers(0, 200_000))
def test_every_segment_begun_has_its_headers(size: int) -> None:
    left, expected = size, 0
    while left > 0:
        segment = min(left, 1500 - 20 - 32)
        expected += 14 + 20 + 32 + segment
        left -= segment
    assert wire_bytes(size) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, 0), (1, 67), (SEGMENT, SEGMENT + HEADERS), (SEGMENT + 1, SEGMENT + 1 + 2 * HEADERS)],
)
def test_wire_bytes_at_the_borders_of_segments(size: int, expected: int) -> None:
    assert wire_bytes(size) == expected


def test_a_full_segment_fills_a_frame_of_the_mtu() -> None:
    assert wire_bytes(SEGMENT) == 1500 + 14

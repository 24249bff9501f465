"""The model of wire bytes, against its rules applied segment by segment."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.simulation.wire_model import Acknowledgements, ModelledConnection


@settings(deadline=None)  # the host may be busy
@given(st.lists(st.integers(0, 400_000), max_size=12))
def test_every_super_frame_of_a_long_message_is_acknowledged(sizes: list[int]) -> None:
    """A super-frame ends when it is full, and with its message."""
    way = Acknowledgements()
    rooms = [5, 5, 11, 16, 24, 36]
    for size in sizes:
        segments = [min(1448, size - at) for at in range(0, size, 1448)]
        frames = filled = 0
        for place in range(len(segments)):
            frames += filled == 0
            filled += 1
            if filled == (rooms[0] if rooms else 45):
                rooms, filled = rooms[1:], 0
            elif place == len(segments) - 1:
                filled = 0
        if len(segments) <= 1:
            frames = 0
        assert way.of(size) == 66 * frames


def test_the_congestion_window_opens_once_for_each_connection() -> None:
    way = Acknowledgements()
    megabyte = way.of(10**6)
    assert megabyte == 66 * (6 + -(-(691 - 97) // 45))
    assert way.of(10**6) == 66 * -(-691 // 45) < megabyte
    assert Acknowledgements().of(10**6) == megabyte


@pytest.mark.parametrize(
    ("size", "count"),
    [(32, 0), (1448, 0), (1449, 1), (5 * 1448, 1), (5 * 1448 + 1, 2), (10 * 1448 + 1, 3)],
)
def test_acknowledgements_at_the_borders_of_super_frames(size: int, count: int) -> None:
    assert Acknowledgements().of(size) == 66 * count


def test_messages_have_their_headers_and_are_acknowledged() -> None:
    one = ModelledConnection()
    one.passed(64, up=True)
    assert one.sent == {True: 64 + 66, False: 0}
    one.passed(10_000, up=True)
    assert one.sent == {True: 130 + 10_000 + 7 * 66, False: Acknowledgements().of(10_000)}
    one.ended(10_000, up=False)
    assert one.sent[True] == 130 + 10_000 + 7 * 66


def test_the_beginning_and_the_end_of_a_connection_are_counted() -> None:
    one, other = ModelledConnection(), ModelledConnection()
    one.greeted([], answer=8)
    other.greeted([], answer=8, up=False)
    # The accepting side receives SYN and ACK, the other side both in one; a SYN has options.
    assert one.sent == {True: 74 + 2 * 66, False: 74 + 8 + 66}
    assert other.sent == {False: 74 + 2 * 66, True: 74 + 8 + 66}
    before = dict(one.sent)
    one.closed()
    assert one.sent == {up: size + 66 for up, size in before.items()}


def test_each_end_of_a_connection_acknowledges_what_it_receives() -> None:
    connection = ModelledConnection()
    connection.greeted([100, 50], answer=8)
    up, down = connection.sent[True], connection.sent[False]
    assert (up, down) == (74 + 2 * 66 + 150 + 2 * 66, 74 + 8 + 66)
    way = Acknowledgements()
    connection.passed(100_000, up=True)
    assert connection.sent[False] == down + way.of(100_000)
    connection.passed(100_000, up=False)
    assert connection.sent[True] - connection.sent[False] == up - down
    connection.closed()
    connection.greeted([], answer=8)  # its window is closed again
    before = connection.sent[False]
    connection.passed(100_000, up=True)
    assert connection.sent[False] == before + Acknowledgements().of(100_000)


@settings(deadline=None)  # the host may be busy
@given(st.lists(st.integers(1, 100_000), max_size=10))
def test_messages_in_one_go_take_no_more_than_one_by_one(sizes: list[int]) -> None:
    together, each = ModelledConnection(), ModelledConnection()
    together.passed(sum(sizes), up=True)
    for size in sizes:
        each.passed(size, up=True)
    assert sum(sizes) <= together.sent[True] <= each.sent[True]

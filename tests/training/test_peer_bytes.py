"""The bytes of messages to each peer: which count, and when."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from testbed.training.peer_bytes import ArrivedBytes, Message, ReceivedBytes

PEERS = 4
HEADER, GREETING = 32, 64


def test_a_message_counts_as_it_arrives_and_what_is_under_way_as_training_ends() -> None:
    passed: list[tuple[int, Message]] = []
    one = ArrivedBytes(PEERS, lambda sender, message: passed.append((sender, message)))
    one.connected([[1, 2], [0], [0], []])
    assert one.messages == [2 * GREETING, HEADER, HEADER, 0]
    first, second, other = Message(1, 110, 100), Message(1, 50, 40), Message(2, 30, 20)
    one.sent(0, [first, other])
    one.sent(0, [second])
    assert (one.payload, passed) == ([0] * PEERS, [])
    one.arrived(1, 0)
    assert one.payload == [0, 100, 0, 0]
    assert one.messages == [2 * GREETING, HEADER + 110, HEADER, 0]
    assert passed == [(0, first)]
    one.parted([[1, 2], [0], [0], []])
    assert one.payload == [0, 140, 20, 0]
    assert one.messages == [2 * GREETING + 2 * HEADER, 160 + 2 * HEADER, 30 + 2 * HEADER, 0]
    assert sorted(passed[1:]) == [(0, second), (0, other)]


def test_what_comes_of_a_dead_peer_or_would_go_to_it_does_not_count() -> None:
    one = ArrivedBytes(PEERS)
    one.sent(3, [Message(0, 10, 8)])
    one.sent(0, [Message(3, 10, 8)])
    one.lost(3)
    one.arrived(0, 3)  # it was on its way when the other died by itself
    one.sent(2, [Message(3, 40, 40)])
    one.parted([[]] * PEERS)
    assert one.messages == [0] * PEERS
    one.returned(3, [0])
    assert one.messages == [GREETING, 0, 0, HEADER]


events = st.one_of(
    st.tuples(
        st.sampled_from(["send", "arrive"]), st.integers(0, PEERS - 1), st.integers(0, PEERS - 1)
    ),
    st.tuples(st.sampled_from(["kill", "return"]), st.integers(0, PEERS - 1)),
)


@given(st.lists(events, max_size=40), st.integers(0, 40))
def test_each_message_is_counted_or_lost_also_over_a_checkpoint(
    happened: list[tuple[str, int, int] | tuple[str, int]], kept_at: int
) -> None:
    """The reference follows every message by itself; its size tells it from all others."""
    dead: set[int] = set()
    under_way: dict[tuple[int, int], deque[int]] = {}
    counted = [0] * PEERS
    one = ArrivedBytes(PEERS)
    for place, (what, peer, *rest) in enumerate(happened):
        if place == kept_at:
            state, one = one.state(), ArrivedBytes(PEERS)
            one.restore(state)
        if what == "send" and peer not in dead and rest[0] != peer:
            one.sent(peer, [Message(rest[0], 1 + 2**place, 2**place)])
            if rest[0] not in dead:
                under_way.setdefault((peer, rest[0]), deque()).append(2**place)
        elif what == "arrive" and under_way.get((peer, rest[0])):
            one.arrived(rest[0], peer)
            counted[rest[0]] += under_way[peer, rest[0]].popleft()
        elif what == "kill":
            dead.add(peer)
            one.lost(peer)
            under_way = {ends: sizes for ends, sizes in under_way.items() if peer not in ends}
        elif what == "return" and peer in dead:
            dead.remove(peer)
            one.returned(peer, [])
        assert one.payload == counted
    one.parted([[]] * PEERS)
    for (_, receiver), sizes in under_way.items():
        counted[receiver] += sum(sizes)
    assert one.payload == counted


def test_what_a_peer_received_in_an_earlier_process_stays_counted() -> None:
    one = ReceivedBytes(2)
    one.connected([[1], [0]])
    one.sent(0, [Message(1, 10, 8)])  # only its receiver knows whether it comes
    assert one.messages == [0, 0]
    for payload, messages in ((8, 10), (16, 20)):
        one.received(1, 0, payload, messages)
    one.received(1, 2, 8, 10)
    one.received(1, 2, 24, 30)
    assert (one.payload, one.messages) == ([0, 40], [0, 50])

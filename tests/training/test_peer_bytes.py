"""The bytes of messages to each peer: which count, and when."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.training.peer_bytes import Message, ReceivedBytes, SentBytes

PEERS = 4
HEADER, GREETING = 32, 64


def test_all_that_is_sent_counts_once_where_all_can_be_reached() -> None:
    passed: list[tuple[int, Message]] = []
    one = SentBytes(PEERS, lambda sender, message: passed.append((sender, message)))
    one.connected([[1, 2], [0], [0], []])
    assert one.messages == [2 * GREETING, HEADER, HEADER, 0]
    messages = [Message(1, 110, 100), Message(2, 30, 20)]
    one.sent(0, messages)
    assert one.payload == [0, 100, 20, 0]
    assert one.messages == [2 * GREETING, HEADER + 110, HEADER + 30, 0]
    assert passed == [(0, message) for message in messages]


def test_what_is_held_counts_once_both_ends_can_be_reached_and_never_if_one_dies() -> None:
    one, cut = SentBytes(PEERS), {1}
    one.is_reachable = lambda peer: peer not in cut
    one.sent(0, [Message(1, 10, 8), Message(2, 10, 8)])
    one.sent(1, [Message(0, 20, 18), Message(3, 20, 18)])
    assert one.messages == [0, 0, 10, 0]
    cut.add(3)
    cut.remove(1)
    one.release()
    assert one.messages == [20, 10, 10, 0]
    one.lost(3)
    cut.clear()
    one.sent(2, [Message(3, 40, 40)])  # nobody is there
    one.parted([[]] * PEERS)
    assert one.messages == [20, 10, 10, 0]
    one.returned(3, [0])
    assert one.messages == [20 + GREETING, 10, 10, HEADER]


def test_what_is_held_as_training_ends_leaves_as_faults_are_undone() -> None:
    one = SentBytes(PEERS)
    one.is_reachable = lambda peer: peer != 1
    one.sent(1, [Message(0, 20, 18)])
    one.parted([[1], [0], [], []])
    assert one.messages == [20 + HEADER, HEADER, 0, 0]


events = st.one_of(
    st.tuples(st.just("send"), st.integers(0, PEERS - 1), st.integers(0, PEERS - 1)),
    st.tuples(st.sampled_from(["cut", "mend", "kill", "return"]), st.integers(0, PEERS - 1)),
)


@given(st.lists(events, max_size=40), st.integers(0, 40))
def test_each_message_is_counted_or_lost_also_over_a_checkpoint(
    happened: list[tuple[str, int, int] | tuple[str, int]], kept_at: int
) -> None:
    """The reference follows every message by itself."""
    cut: set[int] = set()
    dead: set[int] = set()
    held: list[tuple[int, int]] = []
    counted = [0] * PEERS

    def made() -> SentBytes:
        new = SentBytes(PEERS)
        new.is_reachable = lambda peer: peer not in cut
        return new

    one = made()
    for place, (what, peer, *rest) in enumerate(happened):
        if place == kept_at:
            state, one = one.state(), made()
            one.restore(state)
        if what == "send" and peer not in dead and rest[0] != peer:
            one.sent(peer, [Message(rest[0], 1, 1)])
            if rest[0] not in dead:
                held.append((peer, rest[0]))
        elif what == "cut":
            cut.add(peer)
        elif what == "mend":
            cut.discard(peer)
            one.release()
        elif what == "kill":
            dead.add(peer)
            one.lost(peer)
            held = [ends for ends in held if peer not in ends]
        elif what == "return" and peer in dead:
            dead.remove(peer)
            one.returned(peer, [])
        for ends in [ends for ends in held if not cut & {*ends}]:
            held.remove(ends)
            counted[ends[1]] += 1
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

"""The numbers of conversations."""

from testbed.clock.conversations import Conversations, Tree


def test_with_one_server_conversations_are_numbered_as_workers() -> None:
    one = Conversations()
    assert [list(one.of_worker(worker)) for worker in range(3)] == [[0], [1], [2]]


def test_conversations_of_several_servers() -> None:
    three = Conversations(3)
    assert list(three.of_worker(2)) == [6, 7, 8]
    assert [three.worker(number) for number in (6, 7, 8)] == [2, 2, 2]
    assert [three.server(number) for number in (6, 7, 8)] == [0, 1, 2]


def test_with_aggregators_a_conversation_has_its_callers_number() -> None:
    tree = Tree([0, 0, 1, -1, -1], workers=3)
    assert [list(tree.of_worker(worker)) for worker in range(5)] == [[0], [1], [2], [3], [4]]
    assert [tree.server(number) for number in range(5)] == [1, 1, 2, 0, 0]
    assert [tree.place(number) for number in range(5)] == [0] * 5
    assert [tree.between(number, tree.server(number)) for number in range(5)] == list(range(5))
    assert [tree.below(worker) for worker in range(5)] == [None, None, None, 1, 2]
    assert [tree.above(server) for server in range(3)] == [None, 3, 4]


def test_without_aggregators_nothing_is_below_or_above() -> None:
    three = Conversations(3)
    assert [three.place(number) for number in (6, 7, 8)] == [0, 1, 2]
    assert [three.between(2, server) for server in range(3)] == [6, 7, 8]
    assert three.below(2) is three.above(2) is None

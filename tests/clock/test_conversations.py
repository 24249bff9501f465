"""The numbers of conversations."""

import itertools

import pytest

from testbed.clock.conversations import Conversations


def test_with_one_server_conversations_are_numbered_as_workers() -> None:
    one = Conversations.with_all(3)
    assert [list(one.of_worker(worker)) for worker in range(3)] == [[0], [1], [2]]


def test_conversations_of_several_servers() -> None:
    three = Conversations.with_all(3, 3)
    assert list(three.of_worker(2)) == [6, 7, 8]
    assert [three.worker(number) for number in (6, 7, 8)] == [2, 2, 2]
    assert [three.server(number) for number in (6, 7, 8)] == [0, 1, 2]
    assert three.of_server(1) == [1, 4, 7]


def test_with_aggregators_of_one_server_a_conversation_has_its_callers_number() -> None:
    tree = Conversations([[1], [1], [2], [0], [0]], workers=3)
    assert [list(tree.of_worker(worker)) for worker in range(5)] == [[0], [1], [2], [3], [4]]
    assert [tree.server(number) for number in range(5)] == [1, 1, 2, 0, 0]
    assert [tree.place(number) for number in range(5)] == [0] * 5
    assert [tree.between(number, tree.server(number)) for number in range(5)] == list(range(5))
    assert [tree.below(worker) for worker in range(5)] == [None, None, None, 1, 2]
    assert [tree.above(server) for server in range(3)] == [None, 3, 4]


def test_an_aggregator_has_a_conversation_with_each_server_and_its_workers_one_with_it() -> None:
    """Aggregator 1 is inside the cluster of aggregator 0, which calls both servers."""
    tree = Conversations([[2], [3], [3], [0, 1], [2]], workers=3, servers=2)
    assert [list(tree.of_worker(worker)) for worker in range(5)] == [[0], [1], [2], [3, 4], [5]]
    assert [tree.server(number) for number in range(6)] == [2, 3, 3, 0, 1, 2]
    assert [tree.worker(number) for number in range(6)] == [0, 1, 2, 3, 3, 4]
    assert [tree.place(number) for number in range(6)] == [0, 0, 0, 0, 1, 0]
    assert [tree.of_server(server) for server in range(4)] == [[3], [4], [0, 5], [1, 2]]
    assert [tree.below(worker) for worker in range(5)] == [None, None, None, 2, 3]
    assert [tree.above(server) for server in range(4)] == [None, None, 3, 4]
    for number in range(6):
        assert tree.between(tree.worker(number), tree.server(number)) == number


def test_nobody_talks_to_whom_it_does_not_call() -> None:
    tree = Conversations([[2], [2], [0, 1]], workers=2, servers=2)
    for worker, server in itertools.product(range(2), range(2)):
        with pytest.raises(KeyError):
            tree.between(worker, server)


def test_without_aggregators_nothing_is_below_or_above() -> None:
    three = Conversations.with_all(3, 3)
    assert [three.place(number) for number in (6, 7, 8)] == [0, 1, 2]
    assert [three.between(2, server) for server in range(3)] == [6, 7, 8]
    assert three.below(2) is three.above(2) is None

"""The states of workers that checkpoints need: which ones workers are told to keep."""

from testbed.roles.orders import OrderKind, state_number
from testbed.roles.server.kept_states import KeptStates

FIRST, SECOND = (state_number(incarnation, 4) for incarnation in (0, 1))


def test_the_last_two_checkpoints_need_states() -> None:
    kept = KeptStates(remember=True)
    kept.add({0: 0, 1: 4}, [0, 0])
    assert list(kept.orders_to_keep()) == [(1, (OrderKind.KEEP, FIRST))]
    assert kept.orders_to_go_on(0) == []
    assert kept.orders_to_go_on(1) == [(OrderKind.GO_ON, FIRST)]
    kept.add({0: 2, 1: 4}, [0, 1])
    assert list(kept.orders_to_keep()) == [
        (0, (OrderKind.KEEP, state_number(0, 2))),
        (1, (OrderKind.KEEP, SECOND)),
    ]
    assert kept.orders_to_go_on(1) == [(OrderKind.KEEP, FIRST), (OrderKind.GO_ON, SECOND)]
    assert kept.orders_to_begin(1) == [(OrderKind.KEEP, FIRST), (OrderKind.KEEP, SECOND)]
    kept.add({0: 3}, [0, 2])  # the other one is dead
    assert kept.orders_to_go_on(1) == kept.orders_to_begin(1) == [(OrderKind.KEEP, SECOND)]


def test_a_worker_whose_state_is_the_same_is_told_nothing() -> None:
    """It may be frozen for hundreds of checkpoints, and has room for so many orders only."""
    kept = KeptStates(remember=True)
    for _ in range(3):
        kept.add({0: 4}, [0])
    assert list(kept.orders_to_keep()) == []
    assert kept.orders_to_go_on(0) == [(OrderKind.KEEP, FIRST), (OrderKind.GO_ON, FIRST)]


def test_nothing_is_needed_of_workers_that_remember_nothing() -> None:
    kept = KeptStates(remember=False)
    kept.add({0: 4}, [0])
    assert list(kept.orders_to_keep()) == []
    assert kept.orders_to_go_on(0) == kept.orders_to_begin(0) == []

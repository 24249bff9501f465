"""Bounded staleness, by the pushes of each worker."""

from testbed.training.staleness_bound import StalenessBound


def ahead(bound: int | None, pushes: int) -> StalenessBound:
    """Return the bound of two workers, of which the first has made some pushes, and the other none."""
    made = StalenessBound(bound)
    for worker in (0, 1):
        made.joined(worker)
    for _ in range(pushes):
        made.pushed(0)
    return made


def test_a_worker_waits_for_the_slowest_one_beyond_the_bound() -> None:
    assert ahead(2, 2).allows(0)
    assert not ahead(2, 3).allows(0)
    assert ahead(2, 3).allows(1)
    assert ahead(None, 1000).allows(0)


def test_nobody_waits_for_a_worker_that_is_gone() -> None:
    one = ahead(2, 3)
    one.forget(1)
    assert one.allows(0)


def test_a_worker_that_joins_begins_at_the_least_count_of_the_others() -> None:
    one = ahead(2, 3)
    one.forget(1)
    one.joined(1)
    assert one.allows(0)
    for _ in range(2):
        one.pushed(0)
    assert one.allows(0)
    one.pushed(0)
    assert not one.allows(0)

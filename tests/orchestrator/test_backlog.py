"""That evaluations wait is said when they are many, and again when they have doubled."""

from testbed.orchestrator.backlog import FIRST, Backlog


def test_many_are_told_and_twice_as_many_again() -> None:
    backlog = Backlog()
    told = [waiting for waiting in range(5 * FIRST) if backlog.warning(waiting)]
    assert told == [FIRST, 2 * FIRST, 4 * FIRST]


def test_what_was_told_is_not_told_when_they_become_fewer() -> None:
    backlog = Backlog()
    assert backlog.warning(3 * FIRST) is not None
    assert [backlog.warning(waiting) for waiting in (FIRST, 2 * FIRST, 3 * FIRST)] == [None] * 3

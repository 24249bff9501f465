"""The warning that many evaluations wait, repeated each time their number has doubled."""

from testbed.orchestrator.backlog import FIRST, Backlog


def test_a_warning_is_due_at_the_first_limit_and_at_each_doubling() -> None:
    backlog = Backlog()
    told = [waiting for waiting in range(5 * FIRST) if backlog.warning(waiting)]
    assert told == [FIRST, 2 * FIRST, 4 * FIRST]


def test_a_warning_is_not_repeated_after_the_number_has_fallen() -> None:
    backlog = Backlog()
    assert backlog.warning(3 * FIRST) is not None
    assert [backlog.warning(waiting) for waiting in (FIRST, 2 * FIRST, 3 * FIRST)] == [None] * 3

"""What each worker may push, by what it was sent and by the legs of its half."""

import pytest

from testbed.algorithms.worker_half import ONE_GRADIENT, Leg
from testbed.training.expected_pushes import ExpectedPushes


def test_a_worker_of_several_updates_between_asks_may_push_each() -> None:
    """Downpour with a push every two gradients and a fetch every five: lengths 2, 2, 1, 1, 2, 2."""
    ends = [2, 4, 5, 6, 8, 10]
    legs = [Leg(1, pushes=end % 2 == 0, asks=end % 5 == 0) for end in ends]
    expected = ExpectedPushes(legs, asks=True)
    expected.joined(0)
    expected.sent(0, 7)
    for _ in range(3):
        expected.pushed(0, 7, reported=False)
    with pytest.raises(ValueError, match="one push more"):
        expected.pushed(0, 7, reported=False)
    expected.sent(0, 9)
    with pytest.raises(ValueError, match="version 7, for which worker 0 has nothing to push"):
        expected.pushed(0, 7, reported=False)


def test_a_worker_that_is_sent_every_version_pushes_for_later_ones_only() -> None:
    expected = ExpectedPushes(ONE_GRADIENT, asks=False)
    expected.joined(0)
    for version in range(4):
        expected.sent(0, version)
    expected.pushed(0, 1, reported=True)
    expected.pushed(0, 2, reported=False)
    expected.pushed(0, 2, reported=True)  # of one of several servers, it had pushed for it before
    for wrong, reported in ((1, True), (0, False), (2, False), (4, False)):
        with pytest.raises(ValueError, match="worker 0"):
            expected.pushed(0, wrong, reported=reported)
    expected.joined(0)  # another process of it
    with pytest.raises(ValueError, match="it may push for none yet"):
        expected.pushed(0, 3, reported=False)


def test_of_two_pushes_for_a_version_that_was_sent_twice_before_either_the_first_counts() -> None:
    """A worker that was suspected is sent the newest version anew, though it has yet to read it."""
    expected = ExpectedPushes(ONE_GRADIENT, asks=False)
    expected.joined(0)
    expected.sent(0, 5)
    assert expected.pushed(0, 5, reported=False)
    expected.sent(0, 5)  # it was dropped and has to push again
    assert expected.pushed(0, 5, reported=True)  # for what it was sent first
    expected.sent(0, 5)
    assert expected.pushed(0, 5, reported=False)
    assert not expected.pushed(0, 5, reported=False)
    with pytest.raises(ValueError, match="one push more"):
        expected.pushed(0, 5, reported=False)
    expected.sent(0, 6)
    assert expected.pushed(0, 6, reported=False)


def test_a_worker_that_overlaps_pushes_for_the_version_before_the_one_that_it_was_sent_last() -> (
    None
):
    expected = ExpectedPushes(ONE_GRADIENT, asks=True, overlaps=True)
    expected.joined(0)
    expected.sent(0, 3)
    expected.pushed(0, 3, reported=False)
    expected.sent(0, 4)
    expected.pushed(0, 3, reported=False)  # it had nothing newer when it began
    with pytest.raises(ValueError, match="one push more"):
        expected.pushed(0, 3, reported=False)
    expected.sent(0, 6)
    expected.pushed(0, 4, reported=False)
    expected.sent(0, 6)  # a push that counts for nothing makes no version
    expected.pushed(0, 6, reported=False)
    expected.sent(0, 9)
    expected.pushed(0, 6, reported=False)
    with pytest.raises(ValueError, match="one push more"):
        expected.pushed(0, 6, reported=False)
    with pytest.raises(ValueError, match="version 4, for which worker 0 has nothing to push"):
        expected.pushed(0, 4, reported=False)

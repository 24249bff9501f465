"""The evaluator's table: events in, actions out."""

from testbed.engine.evaluator import Evaluator
from testbed.engine.events import (
    Action,
    Compute,
    Computed,
    Event,
    Job,
    Opened,
    Over,
    Received,
    Report,
    Send,
    Stopped,
)


def after(evaluator: Evaluator, *events: Event) -> list[Action]:
    """Return the actions that follow events, one after the other."""
    return [action for event in events for action in evaluator.handle(event)]


def test_each_version_of_one_server_is_evaluated_and_reported() -> None:
    evaluator = Evaluator(1)
    for number, version in enumerate((0, 10), start=1):
        job = Job(number, (version,))
        assert after(evaluator, Received(0, version)) == [Compute(job)]
        assert after(evaluator, Computed(job)) == [Send(0, Report(version))]
    assert after(evaluator, Stopped(0)) == [Over()]


def test_versions_that_another_server_leaves_out_are_passed_over() -> None:
    evaluator = Evaluator(2)
    assert after(evaluator, Received(0, 10)) == []
    assert after(evaluator, Received(1, 20)) == [Send(0, Report(10))]
    assert after(evaluator, Received(0, 30)) == [Send(1, Report(20))]
    job = Job(1, (30, 30))
    assert after(evaluator, Received(1, 30)) == [Compute(job)]
    assert after(evaluator, Computed(job)) == [Send(0, Report(30)), Send(1, Report(30))]
    # What a server sends that is alone is reported too: it need not keep it.
    assert after(evaluator, Stopped(0)) == []
    assert after(evaluator, Received(1, 40)) == [Send(1, Report(40))]
    assert after(evaluator, Stopped(1)) == [Over()]


def test_a_server_that_is_back_goes_on_where_it_was() -> None:
    evaluator = Evaluator(2)
    assert after(evaluator, Received(0, 0), Opened(0, 1)) == []
    assert after(evaluator, Received(1, 0)) == [Compute(Job(1, (0, 0)))]


def test_what_has_come_of_a_server_that_leaves_is_not_evaluated() -> None:
    evaluator = Evaluator(2)
    assert after(evaluator, Received(1, 4), Stopped(0)) == [Send(1, Report(4))]
    assert after(evaluator, Stopped(1)) == [Over()]

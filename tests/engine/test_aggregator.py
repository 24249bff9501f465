"""The aggregator's table: events in, actions out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.engine.aggregator import Aggregator, above
from testbed.engine.events import (
    Action,
    Closed,
    Compute,
    Event,
    Heard,
    Message,
    Opened,
    Over,
    Pull,
    Received,
    Report,
    Send,
    Stop,
    Stopped,
    Sum,
)
from testbed.engine.server import RETURN_TIMEOUT, Server
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Moment
from testbed.messages.reports import Suspected, Welcomed
from testbed.training.aggregator_service import AggregatorService
from testbed.training.service_entries import Connected, Remark, TrainingBegan
from tests.engine.serving import Serving, answers, entries, is_over, opened, pushed
from tests.training.test_parameter_service import LAYOUT, SIZE, settings

ABOVE = above(0)


class Cluster(Serving):
    """An aggregator with two devices, and the server above.

    Attributes:
        parameters: those that are received from above.
        sums: base version, at the first server, and number of the updates that it has pushed.
    """

    def __init__(
        self,
        wait_for: int = 2,
        within: float | None = None,
        absence: float = 0.0,
        aggregator_of: Sequence[int] = (0, 0, -1),
        servers: int = 1,
        **changes: Any,
    ) -> None:
        zeros = np.zeros(SIZE, np.float32)
        half = AggregatorHalf(zeros, None, wait_for=wait_for, within=within)
        of_run = settings(**changes)
        addresses = ["10.0.0.1"] * servers
        network = replace(of_run.network, aggregator_of=aggregator_of, server_addresses=addresses)
        below = AggregatorService(half, LAYOUT, replace(of_run, network=network), index=servers)
        super().__init__(Server(below, 2, absence=absence))
        self.parameters = np.zeros(SIZE, np.float32)
        self.aggregator = Aggregator(self.role, half)
        self.sums: list[tuple[int, int]] = []

    def handle(self, event: Event) -> Iterator[Action]:
        for action in self.aggregator.handle(event, self.now):
            if isinstance(action, Send) and isinstance(action.message, Sum):
                combined = action.message.combined
                self.sums.append((combined.bases[0], combined.count))
            if isinstance(action, Compute):
                assert isinstance(self.service, AggregatorService)
                self.service.adopt(self.parameters, action.job.bases, self.now)
            else:
                yield action

    def receive(self, version: int, value: float = 0.5) -> list[Action]:
        """Have the server above send parameters that are all the same."""
        self.parameters[:] = value
        return self.tell(Received(ABOVE, version))


def upwards(said: list[Action]) -> list[type[Message]]:
    """Return the kinds of messages to the server above."""
    return [
        type(one.message) for one in said if isinstance(one, Send) and one.conversation == ABOVE
    ]


def to(place: int, said: list[Action]) -> list[Message]:
    """Return the messages to one of several servers above."""
    sent = [one for one in said if isinstance(one, Send)]
    return [one.message for one in sent if one.conversation == above(place)]


def kinds(place: int, said: list[Action]) -> list[type[Message]]:
    return [type(one) for one in to(place, said)]


def of_two(*versions: int, **options: Any) -> Cluster:
    """Return an aggregator whose devices compute at a version of each of two servers."""
    one = Cluster(servers=2, **options)
    one.tell(*opened(0, 1), Opened(above(0)), Opened(above(1)))
    for place, version in enumerate(versions or (0, 0)):
        one.tell(Received(above(place), version))
    return one


def begun(*versions: int, **options: Any) -> Cluster:
    """Return an aggregator whose devices compute at the last of some versions."""
    one = Cluster(**options)
    one.tell(*opened(0, 1), Opened(ABOVE))
    for version in versions or (0,):
        one.receive(version)
    return one


def test_it_asks_above_when_its_devices_are_there_and_serves_what_it_gets() -> None:
    one = Cluster()
    said = one.tell(*opened(0, 1))
    assert entries(said) == [Connected(1), Connected(2), TrainingBegan()]
    assert not answers(said) and not upwards(said)
    assert upwards(one.tell(Opened(ABOVE))) == [Pull]
    said = one.receive(4, 1.5)
    assert answers(said) == [(0, 4), (1, 4)] and not upwards(said)
    assert set(one.service.half.parameters) == {1.5}


def test_it_pushes_a_sum_and_asks_once_all_have_pushed() -> None:
    one = begun(4)
    assert not upwards(one.pushes(0, 4))
    said = one.pushes(1, 4)
    assert upwards(said) == [Sum, Pull]
    assert one.sums == [(4, 2)]
    assert not answers(said)  # both wait for the next version
    assert answers(one.receive(6)) == [(0, 6), (1, 6)]


def test_what_comes_too_late_for_its_sum_is_dropped() -> None:
    one = begun(wait_for=1)
    assert upwards(one.pushes(0, 0)) == [Sum, Pull]
    assert not upwards(one.pushes(1, 0))
    assert one.sums == [(0, 1)]


def test_a_device_that_goes_may_close_the_sum() -> None:
    one = begun()
    one.pushes(0, 0)
    assert upwards(one.tell(Closed(1))) == [Sum, Pull]
    assert one.sums == [(0, 1)]


def test_its_time_limit_closes_the_sum() -> None:
    one = begun(within=2.0)
    one.wait(0.5)
    one.pushes(0, 0)
    assert not upwards(one.wait(1.0))
    assert upwards(one.wait(0.5)) == [Sum, Pull]
    one.receive(1)
    # Nobody has pushed by then: the first one after it is a sum by itself.
    assert not upwards(one.wait(2.0))
    assert upwards(one.pushes(1, 0, asks=False)) == []
    assert upwards(one.pushes(0, 1)) == [Sum, Pull]


def test_the_limit_of_a_sum_that_has_closed_is_none_of_the_next() -> None:
    one = begun(within=2.0)
    one.wait(1.0)
    one.pushes(0, 0)
    one.pushes(1, 0)
    one.receive(1)
    one.pushes(0, 1)
    assert not upwards(one.wait(1.9))
    assert upwards(one.wait(0.1)) == [Sum, Pull]


def test_without_devices_it_rests_until_one_is_back() -> None:
    one = begun(absence=5.0)
    assert not upwards(one.tell(Closed(0)))
    said = one.tell(Closed(1))
    assert upwards(said) == [Report]
    assert one.tell() == []
    one.wait(1.0)
    assert upwards(one.tell(Opened(1))) == [Pull]
    assert answers(one.receive(3) + one.tell(Heard(1, Pull(), 10))) == [(1, 3)]
    assert upwards(one.pushes(1, 3, asks=False)) == [Sum, Pull]


def test_without_devices_for_good_it_ends() -> None:
    one = begun(absence=5.0)
    one.tell(Closed(0), Closed(1))
    said = one.wait(5.0 + RETURN_TIMEOUT)
    assert entries(said) == [Remark("no device of its cluster is left", of_role=True)]
    assert is_over(said)


def outer(**options: Any) -> Cluster:
    """Return an aggregator with two others inside its cluster, which are callers 3 and 4."""
    one = Cluster(aggregator_of=(1, 2, -1, 0, 0), **options)
    one.tell(*opened(3, 4), Opened(ABOVE))
    one.receive(0)
    return one


def test_aggregators_inside_its_cluster_push_sums() -> None:
    one = outer()
    assert not upwards(one.tell(*pushed(3, 0, count=5)))
    assert upwards(one.tell(*pushed(4, 0, count=2))) == [Sum, Pull]
    assert one.sums == [(0, 7)]


def test_a_sum_from_a_device_is_refused() -> None:
    with pytest.raises(ValueError, match="worker 0 pushed a sum of 5 updates, as aggregators do"):
        begun().tell(*pushed(0, 0, count=5))


def test_it_rests_when_all_aggregators_inside_do_until_one_asks() -> None:
    one = outer()
    assert not upwards(one.tell(*pushed(3, 0, update=False, asks=False)))
    assert upwards(one.tell(*pushed(4, 0, update=False, asks=False))) == [Report]
    assert one.wait(1.0) == []
    assert one.settle() == []
    assert upwards(one.tell(Heard(4, Pull(), 10))) == [Pull]
    assert answers(one.receive(5)) == [(4, 5)]
    # It is not waited for who rests on.
    assert upwards(one.tell(*pushed(4, 5, count=2))) == [Sum, Pull]
    assert one.sums == [(5, 2)]
    # One that rests and leaves takes nothing with it.
    one.receive(6)
    one.tell(Closed(3))
    assert upwards(one.tell(*pushed(4, 6, count=1))) == [Sum, Pull]


def test_it_rests_when_one_inside_leaves_and_the_other_rests() -> None:
    one = outer()
    one.tell(*pushed(3, 0, update=False, asks=False), Closed(3))
    assert upwards(one.tell(*pushed(4, 0, update=False, asks=False))) == [Report]
    assert one.settle() == []
    assert upwards(one.tell(Heard(4, Pull(), 10))) == [Pull]


STRIKES = FaultRule("faults 0", Fault(0, "freeze"), [3, 4], Moment(1.0))


def test_aggregators_inside_that_no_fault_strikes_may_be_silent() -> None:
    one = outer(suspect_after=2.0)
    assert one.wait(100.0) == []


def test_aggregators_inside_are_suspected_after_their_devices() -> None:
    """They wait for these as long as anyone, and only then can be late themselves."""
    one = outer(suspect_after=2.0, rules=[STRIKES])
    assert not entries(one.wait(3.9))
    said = one.wait(0.1)
    assert {entry.worker for entry in entries(said) if isinstance(entry, Suspected)} == {3, 4}
    assert upwards(said) == [Report]


def test_an_aggregator_inside_without_devices_is_not_suspected() -> None:
    one = outer(suspect_after=2.0, rules=[STRIKES])
    one.tell(*pushed(4, 0, update=False, asks=False))
    suspected = [one for one in entries(one.wait(100.0)) if isinstance(one, Suspected)]
    assert [entry.worker for entry in suspected] == [3]


def test_the_patience_with_an_aggregator_inside_only_grows() -> None:
    """Its sums are its devices': each that is late is lost, and reports in between tell nothing."""
    one = outer(suspect_after=2.0, rules=[STRIKES])
    one.wait(4.0)
    one.tell(*pushed(3, 0, count=2))
    one.receive(1)
    one.tell(*pushed(3, 1, update=False, asks=False), Heard(3, Pull(), 10))
    one.receive(2)
    one.tell(*pushed(3, 2, count=2))
    one.receive(3)
    one.wait(7.9)
    assert not one.service.is_suspected(3)
    one.wait(0.1)
    assert one.service.is_suspected(3)


def test_an_earlier_version_comes_from_an_aggregator_that_has_lost_its_server() -> None:
    one = Cluster(aggregator_of=(0, 0, 1, -1))
    one.tell(*opened(0, 1), Opened(ABOVE))
    one.receive(3)
    one.pushes(0, 3)
    one.pushes(1, 3)
    assert answers(one.receive(2)) == [(0, 2), (1, 2)]
    one.pushes(0, 2)
    assert upwards(one.pushes(1, 2)) == [Sum, Pull]
    assert one.sums == [(3, 2), (2, 2)]


def test_suspected_devices_are_as_good_as_gone() -> None:
    one = begun(suspect_after=2.0)
    said = one.wait(2.0)
    assert {entry.worker for entry in entries(said) if isinstance(entry, Suspected)} == {0, 1}
    assert upwards(said) == [Report]
    said = one.pushes(0, 0)
    assert [type(entry) for entry in entries(said)] == [Welcomed]
    assert upwards(said) == [Pull]


def test_a_server_that_comes_back_is_asked_anew_and_the_sum_is_dropped() -> None:
    one = begun(2)
    one.pushes(0, 2)
    assert upwards(one.tell(Opened(ABOVE, 1))) == [Pull]
    said = one.receive(1)
    assert answers(said) == [(0, 1)]  # the other still computes at what is lost
    assert not upwards(one.pushes(0, 1))
    said = one.pushes(1, 2)
    assert answers(said) == [(1, 1)] and not upwards(said)
    assert upwards(one.pushes(1, 1)) == [Sum, Pull]
    assert one.sums == [(1, 2)]
    # Also while it waits for an answer, or rests.
    assert upwards(one.tell(Opened(ABOVE, 2))) == [Pull]
    one.receive(1)
    assert upwards(one.tell(Closed(0), Closed(1))) == [Report]
    assert upwards(one.tell(Opened(ABOVE, 3))) == [Pull]


def test_when_the_server_says_so_it_is_over_for_the_devices_too() -> None:
    one = begun()
    one.pushes(0, 0)
    assert one.tell(Stopped(ABOVE)) == [Over()]
    assert one.tell(*pushed(1, 0)) == []
    assert Send(1, Stop()) in one.tell(Closed(1), *opened(1))
    assert not one.sums


# -- several servers above


def test_it_asks_all_servers_and_serves_its_devices_when_all_have_answered() -> None:
    one = Cluster(servers=2)
    said = one.tell(*opened(0, 1), Opened(above(0)))
    assert not kinds(0, said) and not kinds(1, said)
    said = one.tell(Opened(above(1)))
    assert kinds(0, said) == kinds(1, said) == [Pull]
    assert not answers(one.tell(Received(above(1), 7)))
    assert answers(one.tell(Received(above(0), 5))) == [(0, 1), (1, 1)]
    # Its version is its own, as the servers' differ.
    one.pushes(0, 1)
    said = one.pushes(1, 1)
    for place in range(2):
        push, question = to(place, said)
        assert isinstance(push, Sum) and isinstance(question, Pull)
        assert list(push.combined.bases) == [5, 7]
    assert not answers(one.tell(Received(above(0), 6)))
    assert answers(one.tell(Received(above(1), 7))) == [(0, 2), (1, 2)]


def test_it_goes_on_with_the_servers_that_have_not_stopped() -> None:
    one = of_two(3, 4)
    assert not is_over(one.tell(Stopped(above(1))))
    one.pushes(0, 1)
    said = one.pushes(1, 1)
    assert kinds(0, said) == kinds(1, said) == [Sum, Pull]
    assert answers(one.tell(Received(above(0), 4))) == [(0, 2), (1, 2)]
    one.pushes(0, 2)
    (push, _) = to(0, one.pushes(1, 2))
    assert isinstance(push, Sum) and list(push.combined.bases) == [4, 4]
    assert is_over(one.tell(Stopped(above(0))))


def test_it_begins_when_the_server_that_it_still_waits_for_stops() -> None:
    one = of_two()
    one.pushes(0, 1)
    one.pushes(1, 1)
    assert not answers(one.tell(Received(above(0), 1)))
    assert answers(one.tell(Stopped(above(1)))) == [(0, 2), (1, 2)]


def test_one_of_several_servers_that_comes_back_takes_no_part_of_the_sum() -> None:
    one = of_two(4, 4)
    one.pushes(0, 1)
    assert kinds(0, said := one.tell(Opened(above(0), 1))) == [Pull] and not kinds(1, said)
    one.tell(Received(above(0), 2))  # of its checkpoint
    said = one.pushes(1, 1)
    assert not kinds(0, said) and kinds(1, said) == [Sum, Pull]
    assert answers(one.tell(Received(above(1), 5))) == [(0, 2), (1, 2)]
    one.pushes(0, 2)
    (push, _) = to(0, one.pushes(1, 2))
    assert isinstance(push, Sum) and list(push.combined.bases) == [2, 5]


def test_without_devices_it_reports_to_all_servers_and_asks_all() -> None:
    one = of_two(4, 6, absence=5.0)
    said = one.tell(Closed(0), Closed(1))
    assert (to(0, said), to(1, said)) == ([Report(4)], [Report(6)])
    one.wait(1.0)
    said = one.tell(Opened(1))
    assert kinds(0, said) == kinds(1, said) == [Pull]


def test_while_it_rests_all_servers_are_asked_when_one_comes_back() -> None:
    one = of_two(4, 6, absence=5.0)
    one.tell(Closed(0), Closed(1))
    said = one.tell(Opened(above(1), 1))
    assert kinds(0, said) == kinds(1, said) == [Pull]
    one.tell(Received(above(1), 2))
    said = one.tell(Received(above(0), 5))
    assert (to(0, said), to(1, said)) == ([Report(5)], [Report(2)])


def test_a_server_that_came_back_gets_a_report_of_what_it_sends_now() -> None:
    """It comes back while nothing is combined, and the last device leaves before the others answer."""
    one = of_two(4, 6, absence=5.0)
    assert kinds(1, one.tell(Opened(above(1), 1))) == [Pull]
    one.tell(Received(above(1), 2))
    said = one.tell(Closed(0), Closed(1))
    assert kinds(0, said) == [Report, Pull] and not kinds(1, said)
    said = one.tell(Received(above(0), 4))
    assert (to(0, said), to(1, said)) == ([Report(4)], [Report(2)])
    assert one.tell() == []

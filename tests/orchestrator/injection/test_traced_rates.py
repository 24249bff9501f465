"""Rates that follow traces by the wall clock: what the agent is asked for, and when."""

import math

from testbed.messages.requests import Request, SetTracedRates
from testbed.orchestrator.injection.traced_rates import TracedRates
from testbed.rate_trace import RateTrace
from tests.settings import SIMPLE, with_changes

UP = RateTrace([0, 2, 3], [1000, 0, 3000], 4)
DOWN = RateTrace([0, 5], [8000, 9000], None)
NAMES = {0: "worker-0", 1: "worker-1"}


class Host:
    def __init__(self, clock: str = "wall") -> None:
        self.now = 100.0
        self.asked: list[Request] = []
        settings = with_changes(SIMPLE, workers=2, up_trace=UP, down_trace=DOWN, clock=clock)
        self.rates = TracedRates(
            settings.followed_traces, NAMES, ask=self.asked.append, clock=lambda: self.now
        )

    def at(self, now: float) -> list[Request]:
        self.now = now
        self.rates.turn()
        asked = list(self.asked)
        self.asked.clear()
        return asked


def rates(up: int | None, down: int | None) -> SetTracedRates:
    return SetTracedRates(dict.fromkeys(NAMES.values(), (up, down)))


def test_all_that_changes_at_one_time_is_one_request() -> None:
    host = Host()
    assert host.rates.due == math.inf
    host.rates.training(100.0)
    assert host.at(100.0) == [rates(1000, 8000)]
    assert host.rates.due == 102.0
    assert host.at(101.9) == []
    assert host.at(102.0) == [rates(0, 8000)]
    assert host.at(104.5) == [rates(1000, 8000)]  # the step from 103 to 104 has passed
    assert host.at(105.0) == [rates(1000, 9000)]
    host.rates.release()
    assert host.at(200.0) == [rates(None, None)]
    assert host.rates.due == math.inf


def test_a_resumed_run_goes_on_at_its_place() -> None:
    host = Host()
    host.rates.training(100.0 - 7.5)
    assert host.at(100.0) == [rates(3000, 9000)]
    assert host.rates.due == 100.5


def test_nothing_is_asked_under_the_virtual_clock() -> None:
    host = Host("virtual")
    host.rates.training(100.0)
    assert host.at(150.0) == []
    host.rates.release()
    assert host.at(151.0) == []

"""Rates of links that follow traces, under the wall clock: the agent is asked for what changes.

All changes that are due are one request. Under the virtual clock rates are computed, and nothing is
asked for.
"""

import heapq
import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from testbed.messages.requests import SetTracedRates
from testbed.orchestrator.injection.agenda import Clock
from testbed.orchestrator.injection.impairments import Ask
from testbed.rate_trace import RateTrace

Traces: TypeAlias = tuple[RateTrace | None, RateTrace | None]
"""The traces that a device's uplink and downlink follow; None for a rate that does not change."""


class TracedRates:
    """The traced rates of one run's devices; all times are CLOCK_MONOTONIC in seconds."""

    def __init__(
        self, traces: Mapping[int, Traces], names: Mapping[int, str], *, ask: Ask, clock: Clock
    ) -> None:
        """Start before training, with the links as they were built.

        Args:
            traces: those of each device's uplink and downlink, by number; none of a run whose rates do
                not change for real.
            names: the workers' or peers' names by number.
        """
        self._traces = traces
        self._names = names
        self._ask, self._clock = ask, clock
        self._began = 0.0
        # When a direction's next step begins, in seconds of training, and which step that is.
        self._steps: list[tuple[float, int, bool, int]] = []
        self._rates: dict[tuple[int, bool], int] = {}

    def training(self, when: float) -> None:
        """Set the rates of this moment; training began at a moment of CLOCK_MONOTONIC."""
        self._began = when
        elapsed = max(0.0, self._clock() - when)
        self._steps = []
        for number, both in self._traces.items():
            for up, trace in zip((True, False), both, strict=True):
                if trace is not None:
                    self._follow(number, up, trace.step_at(elapsed))
        self._set(number for number, both in self._traces.items() if any(both))

    def _follow(self, number: int, up: bool, step: int) -> None:
        """Record the rate of a step, and when the next one begins."""
        trace = self._traces[number][0 if up else 1]
        assert trace is not None
        self._rates[number, up] = trace.rate(step)
        begin = trace.begin(step + 1)
        if begin < math.inf:
            heapq.heappush(self._steps, (begin, number, up, step + 1))

    @property
    def due(self) -> float:
        """The time of the next change; infinite if there is none."""
        return self._began + self._steps[0][0] if self._steps else math.inf

    def turn(self) -> None:
        """Set the rates that have changed by now."""
        changed: set[int] = set()
        elapsed = self._clock() - self._began
        while self._steps and self._steps[0][0] <= elapsed:
            _, number, up, step = heapq.heappop(self._steps)
            self._follow(number, up, step)
            changed.add(number)
        self._set(sorted(changed))

    def release(self) -> None:
        """Set the rates as planned, none of which is 0, for good: training has ended."""
        devices = [number for number, both in self._traces.items() if any(both)]
        self._steps.clear()
        self._rates.clear()
        self._set(devices)

    def _set(self, numbers: Iterable[int]) -> None:
        rates = {
            self._names[number]: (
                self._rates.get((number, True)),
                self._rates.get((number, False)),
            )
            for number in numbers
        }
        if rates:
            self._ask(SetTracedRates(rates))

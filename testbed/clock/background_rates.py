"""The rates that background flows take of a link over time, and the rest, under the virtual clock.

A flow is a fluid: while it is on and its sender can send, it takes its rate, as datagrams do that do
not yield to TCP. ``constant`` and ``poisson`` are on all the time; the periods of ``on-off`` are those
that the wall clock draws. Of equal seeds all times are equal, so nothing that is drawn need be in a
checkpoint but to save drawing it again.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Self

from testbed.network.background import BackgroundFlow, on_periods
from testbed.random_streams import stream
from testbed.rate_trace import RateTrace

LEAST = 0.01
"""The part of a link's rate that flows leave even where they want more: single packets get through."""
_PERIODS = 64
"""Periods that are drawn at first; more are drawn twice as many."""
ROUNDING = 1e-6
"""Bits that a message does not wait for when a rate changes: they are a rounding."""


class Periods:
    """The periods in which a flow with the law ``on-off`` is on."""

    def __init__(self, flow: BackgroundFlow, seed: int, number: int) -> None:
        """Draw none yet.

        Args:
            number: the flow's place in the experiment file.
        """
        self._flow, self._seed, self._number = flow, seed, number
        # Only plain values, so that a checkpoint has all of it: when it goes on, and off, in turn.
        self._changes: list[float] = []

    def is_on(self, time: float) -> bool:
        return self._passed(time) % 2 == 1

    def next_change(self, time: float) -> float:
        """Return the first time after ``time`` at which the flow goes on or off."""
        passed = self._passed(time)
        return self._changes[passed]

    def _passed(self, time: float) -> int:
        """Return the number of changes up to a time; the next one is drawn then."""
        while not self._changes or self._changes[-1] <= time:
            draw = stream(self._seed, "traffic_between", self._number)
            count = max(_PERIODS, len(self._changes))
            periods = islice(on_periods(self._flow, draw)[1], count)
            self._changes = [edge for begin, length in periods for edge in (begin, begin + length)]
        return bisect_right(self._changes, time)


@dataclass(frozen=True, slots=True)
class Taking:
    """The rate that one flow takes of a link over time.

    Attributes:
        flow_rate: in bit/s, while it is on.
        periods: when it is; None: always.
        absent: the times in seconds at which its sender stops to send and sends again, in turn.
    """

    flow_rate: int
    periods: Periods | None = None
    absent: tuple[float, ...] = ()

    def rate(self, time: float) -> int:
        if bisect_right(self.absent, time) % 2:
            return 0
        return self.flow_rate if self.periods is None or self.periods.is_on(time) else 0

    def next_change(self, time: float) -> float:
        """Return the first time after ``time`` at which its rate may change."""
        place = bisect_right(self.absent, time)
        there = self.absent[place] if place < len(self.absent) else inf
        # Whether it would be on does not matter while its sender is away.
        if self.periods is None or place % 2:
            return there
        return min(there, self.periods.next_change(time))

    def without_sender(self, now: float, until: float) -> Self:
        """Return the same for a sender that is away until a time; if that is over, it is there."""
        passed = self.absent[: bisect_right(self.absent, now)]
        is_away = len(passed) % 2 == 1
        if until > now:
            begun = passed if is_away else (*passed, now)
            return replace(self, absent=(*begun, until))
        return replace(self, absent=(*passed, now) if is_away else passed)


@dataclass(frozen=True, slots=True)
class RestOfRate:
    """The rate of one direction of a link over time, without what background flows take of it.

    Attributes:
        usual: its rate in bit/s, or the trace that this follows; None: it has no limit.
        takings: what flows take.
        limit: the rate that a fault gives it, in bit/s, or the most that it leaves of a trace's;
            None: none does.
    """

    usual: RateTrace | int | None
    takings: tuple[Taking, ...]
    limit: int | None = None

    def limited(self, limit: int | None) -> Self:
        return replace(self, limit=limit)

    def whole(self, time: float) -> float:
        """Return the rate of the link itself."""
        if isinstance(self.usual, RateTrace):
            traced = self.usual.rate(self.usual.step_at(time))
            return traced if self.limit is None else min(traced, self.limit)
        return self.limit or self.usual or inf

    def rate(self, time: float) -> float:
        """Return what is left for messages."""
        whole = self.whole(time)
        return whole - taken(whole, self._wanted(time)) if whole < inf else inf

    def share(self, time: float) -> float:
        """Return the part that passes of what flows want to send."""
        wanted = self._wanted(time)
        return taken(self.whole(time), wanted) / wanted if wanted else 1.0

    def _wanted(self, time: float) -> int:
        return sum(one.rate(time) for one in self.takings)

    def next_change(self, time: float) -> float:
        """Return the first time after ``time`` at which the rate may change."""
        changes = [one.next_change(time) for one in self.takings]
        if isinstance(self.usual, RateTrace):
            changes.append(self.usual.begin(self.usual.step_at(time) + 1))
        return min(changes, default=inf)

    def after(self, start: float, bits: float) -> float:
        """Return the time at which so many bits have passed that begin to pass at ``start``."""
        at = start
        while True:
            rate, end = self.rate(at), self.next_change(at)
            if rate and bits - rate * (end - at) <= ROUNDING:
                return min(at + bits / rate, end)
            bits = max(0.0, bits - rate * (end - at))
            at = end

    def bits_between(self, start: float, end: float) -> float:
        """Return the bits that can pass from one time to another."""
        at, bits = start, 0.0
        while at < end:
            until = min(end, self.next_change(at))
            bits += self.rate(at) * (until - at)
            at = until
        return bits


STORED: tuple[type, ...] = (BackgroundFlow, Periods, Taking, RestOfRate)
"""The classes in a state, besides plain values."""


def always(takings: Sequence[Taking]) -> int:
    """Return the rate in bit/s of the flows that are on as long as their senders send."""
    return sum(one.flow_rate for one in takings if one.periods is None)


def taken(whole: float, wanted: float) -> float:
    """Return what flows get that do not yield of a rate that they share with messages, in bit/s."""
    return min(wanted, whole * (1 - LEAST)) if whole < inf else wanted

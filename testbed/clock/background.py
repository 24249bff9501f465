"""The background traffic of a run under the virtual clock: which flows take what of which links.

On the link of a worker or peer a flow takes its rate, and messages get the rest
(``testbed.clock.background_rates``): on its sender's uplink and on its receiver's downlink. It stops
while its sender is frozen, killed, not there or cut off, and goes on with its schedule then. What
flows have sent and what of it has arrived is computed from that, too. Where they want more than a link
has, each passes with its part, and what is left of them takes nothing of the links after it, but of its
receiver's.
"""

from collections.abc import Iterator
from typing import TypeAlias

from testbed.checkpoints.stateful import Stateful
from testbed.clock import background_rates
from testbed.clock.background_rates import Periods, RestOfRate, Taking
from testbed.device_names import is_server, server_number, server_place
from testbed.experiment.background_flows import flows_of
from testbed.faults.slowdown import Pace
from testbed.rate_trace import RateTrace
from testbed.training.settings import Settings

OwnLink: TypeAlias = tuple[int, bool]
"""One direction of a device's own link: the device's number, and True for its uplink."""


def usual_rate(settings: Settings, own: OwnLink) -> RateTrace | int | None:
    """Return the rate of a direction of a device's link, or its trace; None: it has no limit."""
    number, up = own
    told, traces = settings.device(number), settings.rate_traces(number)
    trace = traces[0] if up else traces[1]
    return trace or (told.uplink if up else told.downlink)


class Background(Stateful):
    """The flows of one run, in the order of its experiment file; times are in seconds."""

    not_saved = frozenset({"_ends", "_on", "_usual"})

    def __init__(self, settings: Settings) -> None:
        flows = flows_of(settings.spec.traffic_between)
        self._ends = [(_number(one.sender), _number(one.receiver)) for one in flows]
        self._takings = [
            Taking(one.rate, Periods(one, settings.seed, place) if one.law == "on-off" else None)
            for place, one in enumerate(flows)
        ]
        self._on: dict[OwnLink, list[int]] = {}
        """The places of the flows on each link; servers have none of their own."""
        for place, (sender, receiver) in enumerate(self._ends):
            for own in ((sender, True), (receiver, False)):
                if own[0] >= 0:
                    self._on.setdefault(own, []).append(place)
        self._usual = {own: usual_rate(settings, own) for own in self._on}
        self._paces: dict[int, Pace] = {}
        self._down: dict[int, float] = {}
        """The times until which devices' links are down."""
        self._counts = [(0.0, 0.0, 0.0)] * len(flows)
        """By flow, a time, and the bits that were sent and that had arrived by then."""

    @property
    def links(self) -> Iterator[tuple[OwnLink, RateTrace | int | None]]:
        """The directions of devices' links that flows pass, with their rates."""
        yield from self._usual.items()

    def on(self, own: OwnLink) -> tuple[Taking, ...]:
        """Return what flows take of a direction of a device's link, in their order."""
        return tuple(self._takings[place] for place in self._on.get(own, ()))

    # -- what faults change

    def follow(self, now: float, device: int, away: float, down: float, pace: Pace) -> set[OwnLink]:
        """Follow the condition of a device, as it is from now on.

        Args:
            away: when it sends again, or an earlier time if it does.
            down: when its link is up again, or an earlier time if it is.

        Returns:
            The links of which flows take something else now.
        """
        if not ((device, True) in self._on or (device, False) in self._on):
            return set()
        self._counts = [(now, *self._count(place, now)) for place in range(len(self._counts))]
        self._paces[device], self._down[device] = pace, down
        changed: set[OwnLink] = set()
        for place in self._on.get((device, True), ()):
            taking = self._takings[place]
            if (other := taking.without_sender(now, away)) != taking:
                self._takings[place] = other
                changed |= {(device, True), (self._ends[place][1], False)}
        return changed & self._on.keys()

    # -- what was sent

    def at(self, now: float) -> list[tuple[int, int]]:
        """Return the bytes on the wire of each flow that were sent until now, and that have arrived."""
        counts = (self._count(place, now) for place in range(len(self._counts)))
        return [(round(sent / 8), round(arrived / 8)) for sent, arrived in counts]

    def of_devices(self, now: float) -> Iterator[tuple[int, int, int, int]]:
        """Yield the sender and the receiver of each flow, by number, and its bytes as ``at`` does."""
        for (sender, receiver), both in zip(self._ends, self.at(now), strict=True):
            yield sender, receiver, *both

    def _count(self, place: int, now: float) -> tuple[float, float]:
        """Return the bits of a flow that were sent until now, and that have arrived.

        What is kept is counted up to a change of a rate, so that no sum depends on who asks when.
        """
        (sender, receiver), taking = self._ends[place], self._takings[place]
        up, down = self._rest((sender, True)), self._rest((receiver, False))
        opened = self._down.get(receiver, 0.0)
        at, sent, arrived = self._counts[place]
        while at < now:
            self._counts[place] = at, sent, arrived
            rests = [one.next_change(at) for one in (up, down) if one]
            end = min(now, taking.next_change(at), *rests, opened if at < opened else now)
            passed = taking.rate(at) * (end - at) * (up.share(at) if up else 1.0)
            sent += passed
            if at >= opened:
                arrived += passed * (down.share(at) if down else 1.0)
            at = end
        return sent, arrived

    def _rest(self, own: OwnLink) -> RestOfRate | None:
        """Return the rate of a device's link besides what flows take; None of a server's."""
        number, up = own
        if number < 0:
            return None
        pace = self._paces.get(number)
        limit = None if pace is None else pace.uplink if up else pace.downlink
        return RestOfRate(self._usual[own], self.on(own), limit)


STORED: tuple[type, ...] = (*background_rates.STORED, Pace)
"""The classes in a state, besides plain values."""


def background(settings: Settings) -> Background | None:
    """Return a run's background traffic; None without flows."""
    return Background(settings) if settings.spec.traffic_between else None


def _number(name: str) -> int:
    """Return the number of a device, as faults name it."""
    if is_server(name):
        return server_number(server_place(name))
    return int(name.rpartition("-")[2])

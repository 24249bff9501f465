"""The background traffic of a run under the virtual clock: which flows take what of which links.

On the link of a worker or peer a flow takes its rate, and messages get the rest
(``testbed.clock.background_rates``): on its sender's uplink and on its receiver's downlink, and of the
latter as much where links before it have passed less. On links that devices share, flows of one pair
of devices are a *bundle*, which has its share (``testbed.clock.shared_transfers``). A flow stops while
its sender is frozen, killed, not there or cut off, and goes on with its schedule then. What flows have
sent and what of it has arrived is computed from that, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from testbed.checkpoints.stateful import Stateful
from testbed.clock import background_rates
from testbed.clock.background_rates import Periods, RestOfRate, Taking
from testbed.device_names import is_server, server_number, server_place
from testbed.experiment.traffic_flows import flows_of
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
        """The places of the flows that each device sends, or receives."""
        for place, (sender, receiver) in enumerate(self._ends):
            for own in ((sender, True), (receiver, False)):
                self._on.setdefault(own, []).append(place)
        # Servers have no links of their own, and of a machine with a server the link is shared.
        first = settings.network.co_located
        self._usual = {own: usual_rate(settings, own) for own in self._on if own[0] >= first}
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
        places = self._on[own] if own in self._usual else ()
        return tuple(self._takings[place] for place in places)

    def bundles(
        self, routes: Sequence[Sequence[int]]
    ) -> Iterator[tuple[tuple[int, int], list[int]]]:
        """Yield the pairs of devices of flows over shared links, with the flows' places.

        Args:
            routes: the shared links that each flow passes.
        """
        found: dict[tuple[int, int], list[int]] = {}
        for place, route in enumerate(routes):
            if route:
                found.setdefault(self._ends[place], []).append(place)
        yield from found.items()

    def entering(self, places: Sequence[int], time: float) -> tuple[float, float]:
        """Return the rate at which flows of one sender leave its link, and when that changes next."""
        sender, _ = self._ends[places[0]]
        up, takings = self._rest((sender, True)), [self._takings[place] for place in places]
        rate = sum(one.rate(time) for one in takings) * (up.share(time) if up else 1.0)
        changes = [one.next_change(time) for one in takings]
        return rate, min([*changes, up.next_change(time)] if up else changes)

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
        for place in range(len(self._counts)):
            self.count([place], now, 1.0)
        self._paces[device], self._down[device] = pace, down
        changed: set[OwnLink] = set()
        for place in self._on.get((device, True), ()):
            taking = self._takings[place]
            if (other := taking.without_sender(now, away)) != taking:
                self._takings[place] = other
                changed |= {(device, True), (self._ends[place][1], False)}
        return changed & self._usual.keys()

    # -- what was sent

    def at(
        self, now: float, parts: Mapping[int, float] = MappingProxyType({})
    ) -> list[tuple[int, int]]:
        """Return the bytes on the wire of each flow that were sent until now, and that have arrived.

        Args:
            parts: the part of what left its sender's link that links which devices share have passed
                since ``count``, for the places of flows over such links.
        """
        counts = []
        for place in range(len(self._counts)):
            if place in parts:
                _, sent, arrived = self._counted(place, now, parts[place])[-1]
            else:
                # Kept up to a change of a rate, so that no sum depends on who asks when.
                *before, (_, sent, arrived) = self._counted(place, now, 1.0)
                self._counts[place] = before[-1] if before else self._counts[place]
            counts.append((round(sent / 8), round(arrived / 8)))
        return counts

    def count(self, places: Sequence[int], now: float, part: float) -> None:
        """Count what flows have sent, and the part of it that shared links have passed."""
        for place in places:
            self._counts[place] = self._counted(place, now, part)[-1]

    @property
    def ends(self) -> Sequence[tuple[int, int]]:
        """The sender and the receiver of each flow, by number."""
        return self._ends

    def _counted(self, place: int, now: float, part: float) -> list[tuple[float, float, float]]:
        """Return the counts of a flow at each change of a rate since they were kept, and now."""
        (sender, receiver), taking = self._ends[place], self._takings[place]
        up, down = self._rest((sender, True)), self._rest((receiver, False))
        opened = self._down.get(receiver, 0.0)
        at, sent, arrived = self._counts[place]
        found = [] if at < now else [(now, sent, arrived)]
        while at < now:
            rests = [one.next_change(at) for one in (up, down) if one]
            end = min(now, taking.next_change(at), *rests, opened if at < opened else now)
            passed = taking.rate(at) * (end - at) * (up.share(at) if up else 1.0)
            sent += passed
            if at >= opened:
                arrived += passed * (down.share(at) if down else 1.0) * part
            at = end
            found.append((at, sent, arrived))
        return found

    def _rest(self, own: OwnLink) -> RestOfRate | None:
        """Return the rate of a device's link besides what flows take; None if it has none."""
        if own not in self._usual:
            return None
        number, up = own
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

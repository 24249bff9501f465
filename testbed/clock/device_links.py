"""The links of devices on which transfers share rates, and which traces and faults change.

A device's link carries all that the device sends and receives. A worker with a server on its machine
has none of its own but that of the machine, which carries both devices' conversations with all others.
What the two send each other crosses no link, whatever happens to the machine's. The link of an
aggregator is at its cluster's router and has no rate; where a fault may give it one, it carries what
the aggregator sends and is sent by its devices as well as by those that it calls.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.clock.background import Background, OwnLink, usual_rate
from testbed.clock.conversations import Conversations, PeerConversations, Way
from testbed.clock.rate_courses import Course, course
from testbed.training.settings import Settings


@dataclass(slots=True)
class DeviceLink:
    """One direction of a device's link, which all conversations over it share.

    ``usual`` and ``limit`` are its rates as planned and by faults, where it has no ``course``; ``at``
    is the time in seconds up to which that is followed while there is a flow. One ``is_lost`` that is
    down for good.
    """

    number: int
    usual: float
    course: Course | None = None
    limit: int | None = None
    is_down: bool = False
    is_lost: bool = False
    at: float = 0.0

    @property
    def rate(self) -> float:
        """The present rate, in bit/s."""
        if self.is_down:
            return 0.0
        if self.course is None:
            return float(self.limit) if self.limit else self.usual
        return float(self.course.rate(self.at))

    @property
    def next_change(self) -> float:
        """When the rate changes by itself next, in seconds; infinite if it never does."""
        return math.inf if self.course is None else self.course.next_change(self.at)


class DeviceLinks:
    """The links of a run's devices, which are numbered after those of the routes.

    Attributes:
        rates: of all links, those of the routes first, in bit/s; inf: no limit.
        shared: the numbers of the links on which several transfers may be at a time.
        links: each direction of each device's link.
        over: the ways over each, in their order.
        of_way: the directions of devices' links that each way passes, a sender's first.
    """

    def __init__(
        self,
        settings: Settings,
        talking: Conversations | PeerConversations,
        background: Background | None = None,
    ) -> None:
        self.rates = [float(rate) for rate in settings.network.shared_rates]
        self.shared = list(range(len(self.rates)))
        self.links: dict[OwnLink, DeviceLink] = {}
        self.over: dict[OwnLink, list[Way]] = {}
        self.of_way: dict[Way, list[OwnLink]] = {}
        self._numbers: dict[Way, list[tuple[bool, int]]] = {}
        self._settings, self._talking, self._background = settings, talking, background
        for device in range(settings.workers + settings.aggregators):
            for up in (True, False):
                self._add(device, up=up)
        for found in self.of_way.values():
            found.sort(key=lambda one: not one[1])

    def numbers(self, way: Way) -> list[int]:
        """Return the numbers of the links that a way passes besides those of its route."""
        return [number for _, number in sorted(self._numbers[way])]

    def _add(self, device: int, *, up: bool) -> None:
        settings, one = self._settings, (device, up)
        rate = usual_rate(settings, one)
        usual = float(rate) if isinstance(rate, int) else math.inf
        takings = () if self._background is None else self._background.on(one)
        ways, over = (of(device, up=up) for of in (self._talking.ways, self._talking.over_link))
        if device >= settings.network.co_located:
            number = self._numbered(usual, over if settings.link_is_struck(device) else ways, up=up)
        else:
            # From the worker to the router of its machine, whose link is in the routes.
            number = self._numbered(math.inf, ways, up=up)
            if rate is not None:
                number = self._number_in_route(device, up=up)
            elif any(f.changes_link for rule in settings.faults.rules for _, f in rule.faults()):
                number = self._numbered(usual, over, up=up)
        for way in ways:
            self.of_way.setdefault(way, [])
        for way in over:
            self.of_way.setdefault(way, []).append(one)
        self.links[one], self.over[one] = DeviceLink(number, usual, course(rate, takings)), over

    def _numbered(self, rate: float, ways: Sequence[Way], *, up: bool) -> int:
        """Number one direction of a link that some ways pass besides those of their routes."""
        number = len(self.rates)
        self.rates.append(rate)
        if len(ways) > 1:
            self.shared.append(number)
        for way in ways:
            self._numbers.setdefault(way, []).append((not up, number))
        return number

    def _number_in_route(self, device: int, *, up: bool) -> int:
        """Return the number of the link of a machine with a server: its worker's routes begin there."""
        assert isinstance(self._talking, Conversations)
        elsewhere = 0 if device else 1
        route = self._settings.route(self._talking.between(device, elsewhere))
        assert route is not None
        return route.up[0] if up else route.down[-1]

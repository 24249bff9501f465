"""The background flows of pairs of devices over links that devices share, under the virtual clock.

Those of a pair are a *bundle*, which shares links as one more flow would that never ends
(``testbed.clock.flows``). Where the two devices talk to each other anyway, and the worker to no other,
it is the companion of the message on its way. How much of a bundle enters changes by itself; while no
message is on its way that is caught up with later.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.checkpoints.stateful import Stateful
from testbed.clock.background import Background
from testbed.clock.conversations import Conversations, PeerConversations, Way
from testbed.clock.flows import Flows
from testbed.device_names import server_index

_ROUNDING = 1e-9
"""The part of background traffic that does not pass a link, but is put down to rounding."""


@dataclass(slots=True)
class Bundle:
    """The background flows of one pair of devices.

    Attributes:
        places: their places among the run's flows.
        links: the numbers of the links that they pass.
        alone: the number of the flow that they are while they are no message's companion.
        message: that of the message whose companion they are.
        wants: what enters the shared links, in bit/s.
        change: when that changes by itself next, in seconds.
        since: the time up to which they are counted.
        counted: the bits that had passed the links by then.
        beside: those of them that passed beside messages that have ended.
    """

    places: list[int]
    links: tuple[int, ...]
    alone: int
    message: int | None = None
    wants: float = 0.0
    change: float = 0.0
    since: float = 0.0
    counted: float = 0.0
    beside: float = 0.0


class Bundles(Stateful):
    """All bundles of one run, and the flows of messages, which may have one beside them."""

    not_saved = frozenset({"_background", "_flows", "_of_way"})

    def __init__(
        self,
        background: Background | None,
        talking: Conversations | PeerConversations,
        routes: Sequence[Sequence[int]],
        flows: Flows,
        closed: int,
    ) -> None:
        """Begin all bundles; nothing enters yet.

        Args:
            routes: the shared links that each background flow passes.
            flows: those of messages and bundles.
            closed: the number of a link over which no message goes.
        """
        self._background, self._flows = background, flows
        self._bundles: list[Bundle] = []
        self._of_way: dict[Way, int] = {}
        for ends, places in background.bundles(routes) if background else ():
            shares_with = _way_of(talking, *ends)
            if shares_with is not None:
                self._of_way[shares_with] = len(self._bundles)
            links = (*routes[places[0]], closed)
            self._bundles.append(Bundle(places, links, flows.begin(0.0, links, 1.0)))

    def _beside(self, way: Way) -> Bundle | None:
        place = self._of_way.get(way)
        return None if place is None else self._bundles[place]

    def begin(self, now: float, way: Way, route: Sequence[int], bits: float) -> int:
        """Start the flow of a message, beside which a bundle may be; return its number."""
        bundle = self._beside(way)
        if bundle is None:
            return self._flows.begin(now, route, bits)
        self._flows.set_beside(now, bundle.alone, 0.0)
        bundle.message = self._flows.begin(now, route, bits, beside=bundle.wants)
        return bundle.message

    def end(self, now: float, way: Way, flow: int) -> None:
        """Remove the flow of a message: it has ended, or is given up."""
        bundle = self._beside(way)
        if bundle is not None:
            bundle.beside += self._flows.passed_beside(now, flow)
            bundle.message = None
        self._flows.end(now, flow)
        if bundle is not None:
            self._flows.set_beside(now, bundle.alone, bundle.wants)

    def over(self, link: int) -> list[int]:
        """Return the flows that bundles over a link are while they are no message's companion."""
        return [bundle.alone for bundle in self._bundles if link in bundle.links]

    @property
    def next_change(self) -> float:
        """When what enters changes by itself next, in seconds."""
        return min((one.change for one in self._bundles), default=math.inf)

    def catch_up(self, now: float) -> None:
        """Have bundles enter as they do at a time, with all changes before it."""
        while (change := self.next_change) <= now:
            for bundle in self._bundles:
                if bundle.change == change:
                    self._enter(change, bundle)

    def follow(self, now: float) -> None:
        """Count bundles up to now, and have them enter as the conditions of devices are."""
        self.catch_up(now)
        for bundle in self._bundles:
            self._enter(now, bundle)

    def parts(self, now: float) -> dict[int, float]:
        """Return by its place which part of each flow has passed since its bundle was counted."""
        self.catch_up(now)
        parts = ((one, self._part(now, one)[0]) for one in self._bundles)
        return {place: part for one, part in parts for place in one.places}

    def _enter(self, now: float, bundle: Bundle) -> None:
        assert self._background is not None
        part, bundle.counted = self._part(now, bundle)
        self._background.count(bundle.places, now, part)
        bundle.since = now
        bundle.wants, bundle.change = self._background.entering(bundle.places, now)
        self._flows.set_beside(now, bundle.alone, bundle.wants if bundle.message is None else 0.0)
        if bundle.message is not None:
            self._flows.set_beside(now, bundle.message, bundle.wants)

    def _part(self, now: float, bundle: Bundle) -> tuple[float, float]:
        """Return the part of a bundle that was passed since it was counted, and its bits until now."""
        passed = bundle.beside + self._flows.passed_beside(now, bundle.alone)
        if bundle.message is not None:
            passed += self._flows.passed_beside(now, bundle.message)
        wanted = bundle.wants * (now - bundle.since)
        part = (passed - bundle.counted) / wanted if wanted else 1.0
        return 1.0 if part > 1 - _ROUNDING else part, passed


def _way_of(talking: Conversations | PeerConversations, sender: int, receiver: int) -> Way | None:
    """Return the way of the messages that share what a pair of devices have with background flows.

    None: the two do not talk, or the worker talks to others, too, with which it shares its link.
    """
    worker, server = max(sender, receiver), min(sender, receiver)
    if isinstance(talking, PeerConversations) or not server < 0 <= worker:
        return None
    (number, *others) = talking.of_worker(worker)
    is_alone = not others and talking.server(number) == server_index(server)
    return (number, worker == sender) if is_alone else None

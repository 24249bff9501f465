"""Transfers over links that conversations share, under the virtual clock.

A transfer is a flow over the worker's own link and the shared links of its route, with the bytes of all
headers (``testbed.clock.flows``); between peers, over the sender's uplink, the shared links and the
receiver's downlink. A conversation has one transfer at a time in each direction; others wait. The
conversations of one device share its link, and those of a server beside a worker that of their machine.
The route's delays are added when a transfer has ended, and delay nothing else.

What a worker sends is not known when its transfer begins, as the worker still computes it on the host.
The transfer begins with the bytes of a header. At the moment at which that much would have passed the
clock waits for the message, and the transfer gets its real size. No other transfer can end earlier
because of that, so the order of events stays conservative. (A peer reports what it sends at once.)

Where the rate of a device's link changes by itself, as it follows a trace or background flows take of
it, the next change is known, and counts as an end of a transfer: a change comes before what ends at its
moment. Links on which nothing is on its way are left alone.

The background flows of a pair of devices share links as one more flow would, which never ends. Where
these two devices talk to each other anyway, and the worker to no other, they are the companion of the
message on its way (``testbed.clock.flows``). How much of them enters changes by itself, too; while no
message is on its way that is caught up with later.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from testbed.checkpoints.stateful import Stateful
from testbed.clock import flows
from testbed.clock.background import Background, OwnLink
from testbed.clock.background_rates import RestOfRate, Taking
from testbed.clock.conversations import Conversations, PeerConversations, Way, conversations
from testbed.clock.device_links import DeviceLink, DeviceLinks
from testbed.clock.flows import Flows
from testbed.clock.lines import route_delay
from testbed.clock.transfers import Jitter
from testbed.device_names import server_index
from testbed.network.segments import wire_bytes
from testbed.training.settings import Settings
from testbed.wire.frames import HEADER

_ROUNDING = 1e-9
"""The part of background traffic that does not pass a link, but is put down to rounding."""


@dataclass(slots=True)
class Transfer:
    """A message on its way, or waiting for its turn.

    Attributes:
        up: True if a worker sends it, or the first of two peers.
        size: bytes of the message; None if they are not known yet.
        version: of the parameters that it brings to a worker, or the number of the peer's step that it
            is a part of; otherwise 0.
    """

    conversation: int
    up: bool
    size: int | None
    version: int = 0


@dataclass(slots=True)
class _Queue:
    """One direction of a conversation: the route, and what takes it; the first of it is on its way.

    Where there is jitter, ``last`` is the last arrival so far, and ``held`` the time at which the link
    went down, if it is; in seconds.
    """

    route: tuple[int, ...]
    delay: float
    transfers: deque[Transfer] = field(default_factory=deque)
    flow: int | None = None
    jitter: Jitter | None = None
    last: float = 0.0
    held: float | None = None


@dataclass(slots=True)
class _Bundle:
    """The background flows of one pair of devices over shared links.

    Attributes:
        places: their places among the run's flows.
        links: the numbers of the links that they pass.
        way: the way of the messages with which they share what their devices have; None: of none.
        alone: the number of the flow that they are while no such message is on its way.
        wants: what enters the shared links, in bit/s.
        change: when that changes by itself next, in seconds.
        since: the time up to which they are counted.
        counted: the bits that had passed the links by then.
        beside: those of them that passed beside messages that have ended.
    """

    places: list[int]
    links: tuple[int, ...]
    way: Way | None
    alone: int
    wants: float = 0.0
    change: float = 0.0
    since: float = 0.0
    counted: float = 0.0
    beside: float = 0.0


STORED: tuple[type, ...] = (Transfer, DeviceLink, _Queue, _Bundle, Jitter, *flows.STORED)
"""The classes in a state, besides plain values and arrays."""


class SharedTransfers(Stateful):
    """All transfers of one run."""

    not_saved = frozenset({"_conversations", "_over", "_links_of", "_background", "_bundle_of"})

    def __init__(
        self,
        settings: Settings,
        talking: Conversations | PeerConversations,
        background: Background | None = None,
    ) -> None:
        of_devices = DeviceLinks(settings, talking, background)
        self._links, self._over = of_devices.links, of_devices.over
        self._links_of = of_devices.of_way
        self._queues: dict[Way, _Queue] = {}
        for way in sorted(self._links_of, key=lambda way: (way[0], not way[1])):
            number, up = way
            delay, jitter = route_delay(settings, way, self._links_of[way])
            route = settings.route(number)
            assert route is not None
            passed = (*of_devices.numbers(way), *(route.up if up else route.down))
            self._queues[way] = _Queue(passed, delay, jitter=jitter)
        self._conversations = talking
        rates = of_devices.rates
        self._flows = Flows([*rates, 0.0], of_devices.shared)
        self._background = background
        self._bundles: list[_Bundle] = []
        self._bundle_of: dict[Way, int] = {}
        for ends, places in background.bundles(settings.network.flow_routes) if background else ():
            shares_with = _way_of(talking, *ends)
            if shares_with is not None:
                self._bundle_of[shares_with] = len(self._bundles)
            # The last link is one over which no message goes.
            links = (*settings.network.flow_routes[places[0]], len(rates))
            alone = self._flows.begin(0.0, links, 1.0)
            self._bundles.append(_Bundle(places, links, shares_with, alone))
        self._of_flow: dict[int, Way] = {}
        # The bytes over each way of the transfers that have ended, or were given up.
        self._passed = dict.fromkeys(self._queues, 0)
        # When the rate of a link changes by itself, and which; entries may be out of date.
        self._steps: list[tuple[float, int, bool]] = []

    def begin(self, now: float, transfer: Transfer) -> None:
        """Send a message as soon as all earlier ones of its conversation and direction have left."""
        self._catch_up(now)
        queue = self._queues[transfer.conversation, transfer.up]
        queue.transfers.append(transfer)
        if len(queue.transfers) == 1:
            self._begin_next(now, queue)

    def _begin_next(self, now: float, queue: _Queue) -> None:
        if queue.transfers:
            first = queue.transfers[0]
            size = HEADER.size if first.size is None else first.size
            way = first.conversation, first.up
            for one in self._links_of[way]:
                own = self._links[one]
                if own.course is not None:
                    own.at = now
                    self._change_link(now, one)
            beside = 0.0
            if way in self._bundle_of:
                bundle = self._bundles[self._bundle_of[way]]
                self._flows.set_beside(now, bundle.alone, 0.0)
                beside = bundle.wants
            queue.flow = self._flows.begin(now, queue.route, _bits(size), beside=beside)
            self._of_flow[queue.flow] = way
            for one in self._links_of[way]:
                self._await_step(one)

    def _flows_on(self, one: OwnLink) -> list[int]:
        """Return the flows on a direction of a device's link, in the order in which they began."""
        queues = (self._queues[way] for way in self._over[one])
        number = self._links[one].number
        beside = [bundle.alone for bundle in self._bundles if number in bundle.links]
        return sorted([*beside, *(queue.flow for queue in queues if queue.flow is not None)])

    def _has_flows(self, one: OwnLink) -> bool:
        """Return True if flows are on a direction that may ever end: steps matter to no others."""
        return any(
            self._queues[way].flow is not None
            and not any(self._links[link].is_lost for link in self._links_of[way])
            for way in self._over[one]
        )

    def _change_link(self, now: float, one: OwnLink) -> None:
        own = self._links[one]
        self._flows.change(now, own.number, own.rate, among=self._flows_on(one))

    def _await_step(self, one: OwnLink) -> None:
        """Record when the rate of a link changes by itself, if that matters to a flow."""
        own = self._links[one]
        if own.course is None or own.is_down or not self._has_flows(one):
            return
        change = own.next_change
        if change < math.inf:
            heapq.heappush(self._steps, (change, *one))

    @property
    def _next_step(self) -> float:
        while self._steps:
            time, device, up = self._steps[0]
            own = self._links[device, up]
            if time == own.next_change and not own.is_down and self._has_flows((device, up)):
                return time
            heapq.heappop(self._steps)
        return math.inf

    @property
    def next_end(self) -> float:
        """When the next transfer ends, its size must be known, or a rate changes; inf if none does."""
        ending = self._flows.next_end()
        if ending is None:  # what flows take does not matter then
            return self._next_step
        return min(self._next_step, self._next_bundle, ending[0])

    def change_rate(self) -> bool:
        """Change a rate if one changes by itself next; return True if one was changed."""
        time, ending = self._next_step, self._flows.next_end()
        bundle = math.inf if ending is None else self._next_bundle
        if min(time, bundle) == math.inf or (ending is not None and ending[0] < min(time, bundle)):
            return False
        if bundle <= time:
            self._catch_up(bundle)
            return True
        self._catch_up(time)
        _, device, up = heapq.heappop(self._steps)
        self._links[device, up].at = time
        self._change_link(time, (device, up))
        self._await_step((device, up))
        return True

    def ending(self) -> Transfer:
        ending = self._flows.next_end()
        assert ending is not None
        return self._queues[self._of_flow[ending[1]]].transfers[0]

    def measured(self, transfer: Transfer, size: int) -> None:
        """Give a transfer whose size was not known its size in bytes."""
        transfer.size = size
        queue = self._queues[transfer.conversation, transfer.up]
        if queue.flow is not None and queue.transfers[0] is transfer:
            self._flows.resize(queue.flow, _bits(size))

    def end(self, now: float, transfer: Transfer) -> float:
        """End the transfer on its way, and begin the next; return when its message arrives."""
        self._catch_up(now)
        queue = self._queues[transfer.conversation, transfer.up]
        self._end_flow(now, queue)
        assert transfer.size is not None
        self._passed[transfer.conversation, transfer.up] += wire_bytes(transfer.size)
        queue.transfers.popleft()
        self._begin_next(now, queue)
        arrival = now + queue.delay
        if queue.jitter is not None:
            arrival = queue.last = max(now, arrival + queue.jitter.draw(), queue.last)
        return arrival

    def suspend(self, now: float, transfer: Transfer) -> None:
        """Stop the transfer on its way, whose message does not exist yet: its worker is frozen."""
        self._catch_up(now)
        self._end_flow(now, self._queues[transfer.conversation, transfer.up])

    def resume(self, now: float, conversation: int) -> None:
        """Restart the suspended transfer of a conversation from its first byte."""
        self._catch_up(now)
        queue = self._queues[conversation, True]
        if queue.flow is None:
            self._begin_next(now, queue)

    def _end_flow(self, now: float, queue: _Queue) -> None:
        assert queue.flow is not None
        way = self._of_flow.pop(queue.flow)
        if way in self._bundle_of:
            bundle = self._bundles[self._bundle_of[way]]
            bundle.beside += self._flows.passed_beside(now, queue.flow)
        self._flows.end(now, queue.flow)
        queue.flow = None
        if way in self._bundle_of:
            self._flows.set_beside(now, bundle.alone, bundle.wants)

    def passed(self, now: float) -> dict[Way, int]:
        """Return the bytes on the wire that have passed each way so far."""
        return {
            way: self._passed[way]
            + (0 if queue.flow is None else round(self._flows.passed(now, queue.flow) / 8))
            for way, queue in self._queues.items()
        }

    def has_room(self, conversation: int) -> bool:
        """Return True if nothing is on its way down to the worker of a conversation."""
        return not self._queues[conversation, False].transfers

    def uploads(self) -> Iterator[Transfer]:
        """Yield what workers are sending, or have to send, conversation by conversation in order."""
        for (_, up), queue in self._queues.items():
            if up:
                yield from queue.transfers

    def under_way(self) -> Iterator[Transfer]:
        """Yield all transfers that are to end, or have to wait for others."""
        for queue in self._queues.values():
            yield from queue.transfers

    def unmeasured(self, worker: int) -> list[Transfer]:
        """Return what a worker has to send whose size is not known yet, in order."""
        return [
            one
            for way in self._conversations.ways(worker, up=True)
            for one in self._queues[way].transfers
            if one.size is None
        ]

    def leave(self, now: float, device: int) -> list[Transfer]:
        """Forget all transfers from and to a device that is gone; return them."""
        ups, downs = (self._conversations.ways(device, up=up) for up in (True, False))
        return self.drop(now, [way for both in zip(ups, downs, strict=True) for way in both])

    def drop(
        self, now: float, ways: Iterable[Way], *, unmeasured_only: bool = False
    ) -> list[Transfer]:
        """Forget what is sent over some ways, or only what of it does not exist yet; return it."""
        self._catch_up(now)
        dropped: list[Transfer] = []
        for queue in (self._queues[way] for way in ways):
            kept = [one for one in queue.transfers if unmeasured_only and one.size is not None]
            dropped += [one for one in queue.transfers if not unmeasured_only or one.size is None]
            self._keep(now, queue, kept)
        return dropped

    def toward(self, peer: int) -> list[Transfer]:
        """Return what other peers send a peer, in the order of the conversations' numbers."""
        ways = self._conversations.ways(peer, up=False)
        return [transfer for way in ways for transfer in self._queues[way].transfers]

    def _keep(self, now: float, queue: _Queue, kept: Sequence[Transfer]) -> None:
        """Drop all transfers of a queue but some, the first of which goes on if it is on its way."""
        goes_on = bool(kept) and kept[0] is queue.transfers[0]
        queue.transfers = deque(kept)
        if goes_on:
            return
        if queue.flow is not None:
            self._passed[self._of_flow[queue.flow]] += round(
                self._flows.passed(now, queue.flow) / 8
            )
            self._end_flow(now, queue)
        self._begin_next(now, queue)

    # -- what faults do to a device's link

    def over(self, device: int) -> list[Way]:
        """Return the ways over a device's link, those over its uplink first."""
        return [*self._over[device, True], *self._over[device, False]]

    def links_of(self, way: Way) -> Sequence[OwnLink]:
        """Return the directions of devices' links that a way passes."""
        return self._links_of[way]

    def set_rates(
        self,
        now: float,
        device: int,
        uplink: int | None,
        downlink: int | None,
        *,
        is_down: bool,
        for_good: bool = False,
    ) -> None:
        """Change the rates of a device's link, in bit/s; None restores the usual one.

        Args:
            for_good: True if a link that is down is never up again.
        """
        self._catch_up(now)
        for up, rate in ((True, uplink), (False, downlink)):
            own = self._links[device, up]
            own.limit, own.is_down, own.is_lost, own.at = rate, is_down, for_good, now
            if own.course is not None:
                own.course = own.course.limited(rate)
            self._change_link(now, (device, up))
            self._await_step((device, up))
            for way in self._over[device, up]:
                queue = self._queues[way]
                is_held = any(self._links[link].is_down for link in self._links_of[way])
                if is_held and queue.held is None:
                    queue.held = now
                elif not is_held and queue.held is not None:
                    # What was under way as the link went down arrives that much later.
                    queue.last += (now - queue.held) * (queue.last > queue.held)
                    queue.held = None

    def beside(self, now: float, one: OwnLink, takings: tuple[Taking, ...]) -> None:
        """Leave the link of a device to messages but for what background flows take from now on."""
        own = self._links[one]
        if isinstance(own.course, RestOfRate):
            own.course, own.at = replace(own.course, takings=takings), now
            self._change_link(now, one)
            self._await_step(one)

    # -- background flows over shared links

    @property
    def _next_bundle(self) -> float:
        """When what enters of background flows changes next, in seconds."""
        return min((one.change for one in self._bundles), default=math.inf)

    def _catch_up(self, now: float) -> None:
        """Have background flows enter as they do at a time, with all changes before it."""
        while (change := self._next_bundle) <= now:
            for bundle in self._bundles:
                if bundle.change == change:
                    self._enter(change, bundle)

    def follow_background(self, now: float) -> None:
        """Count background flows up to now, and have them enter as the conditions of devices are."""
        self._catch_up(now)
        for bundle in self._bundles:
            self._enter(now, bundle)

    def background_parts(self, now: float) -> dict[int, float]:
        """Return which part of each background flow shared links have passed since it was counted."""
        self._catch_up(now)
        parts = ((one, self._part(now, one)[0]) for one in self._bundles)
        return {place: part for one, part in parts for place in one.places}

    def _enter(self, now: float, bundle: _Bundle) -> None:
        assert self._background is not None
        part, bundle.counted = self._part(now, bundle)
        self._background.count(bundle.places, now, part)
        bundle.since = now
        bundle.wants, bundle.change = self._background.entering(bundle.places, now)
        beside = None if bundle.way is None else self._queues[bundle.way].flow
        self._flows.set_beside(now, bundle.alone, bundle.wants if beside is None else 0.0)
        if beside is not None:
            self._flows.set_beside(now, beside, bundle.wants)

    def _part(self, now: float, bundle: _Bundle) -> tuple[float, float]:
        """Return the part of a bundle that was passed since it was counted, and its bits until now."""
        passed = bundle.beside + self._flows.passed_beside(now, bundle.alone)
        beside = None if bundle.way is None else self._queues[bundle.way].flow
        if beside is not None:
            passed += self._flows.passed_beside(now, beside)
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


def shared_transfers(
    settings: Settings, background: Background | None = None
) -> SharedTransfers | None:
    """Return a run's transfers between workers and servers if they share links; otherwise None."""
    shares = settings.servers > 1 or any(one.up or one.down for one in settings.network.routes)
    return SharedTransfers(settings, conversations(settings), background) if shares else None


def _bits(size: int) -> int:
    return 8 * wire_bytes(size)

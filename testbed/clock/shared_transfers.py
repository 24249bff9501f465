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
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from testbed.checkpoints.stateful import Stateful
from testbed.clock import flows
from testbed.clock.background import Background, OwnLink
from testbed.clock.background_bundles import Bundle, Bundles
from testbed.clock.background_rates import RestOfRate, Taking
from testbed.clock.conversations import Conversations, PeerConversations, Way, conversations
from testbed.clock.device_links import DeviceLink, DeviceLinks
from testbed.clock.flows import Flows
from testbed.clock.lines import route_delay
from testbed.clock.transfers import Jitter
from testbed.network.segments import wire_bytes
from testbed.training.settings import Settings
from testbed.wire.frames import HEADER


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


STORED: tuple[type, ...] = (Transfer, DeviceLink, _Queue, Bundle, Jitter, *flows.STORED)
"""The classes in a state, besides plain values and arrays."""


class SharedTransfers(Stateful):
    """All transfers of one run."""

    not_saved = frozenset({"_conversations", "_over", "_links_of"})

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
        # The last link is closed.
        self._flows = Flows([*of_devices.rates, 0.0], of_devices.shared)
        routes, closed = settings.network.flow_routes, len(of_devices.rates)
        self._bundles = Bundles(background, talking, routes, self._flows, closed)
        self._of_flow: dict[int, Way] = {}
        # The bytes over each way of the transfers that have ended, or were given up.
        self._passed = dict.fromkeys(self._queues, 0)
        # When the rate of a link changes by itself, and which; entries may be out of date.
        self._steps: list[tuple[float, int, bool]] = []

    def begin(self, now: float, transfer: Transfer) -> None:
        """Send a message as soon as all earlier ones of its conversation and direction have left."""
        self._bundles.catch_up(now)
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
            queue.flow = self._bundles.begin(now, way, queue.route, _bits(size))
            self._of_flow[queue.flow] = way
            for one in self._links_of[way]:
                self._await_step(one)

    def _flows_on(self, one: OwnLink) -> list[int]:
        """Return the flows on a direction of a device's link, in the order in which they began."""
        queues = (self._queues[way] for way in self._over[one])
        of_messages = (queue.flow for queue in queues if queue.flow is not None)
        return sorted([*self._bundles.over(self._links[one].number), *of_messages])

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
        return min(self._next_step, self._bundles.next_change, ending[0])

    def change_rate(self) -> bool:
        """Change a rate if one changes by itself next; return True if one was changed."""
        time, ending = self._next_step, self._flows.next_end()
        bundle = math.inf if ending is None else self._bundles.next_change
        if min(time, bundle) == math.inf or (ending is not None and ending[0] < min(time, bundle)):
            return False
        if bundle <= time:
            self._bundles.catch_up(bundle)
            return True
        self._bundles.catch_up(time)
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
        self._bundles.catch_up(now)
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
        self._bundles.catch_up(now)
        self._end_flow(now, self._queues[transfer.conversation, transfer.up])

    def resume(self, now: float, conversation: int) -> None:
        """Restart the suspended transfer of a conversation from its first byte."""
        self._bundles.catch_up(now)
        queue = self._queues[conversation, True]
        if queue.flow is None:
            self._begin_next(now, queue)

    def _end_flow(self, now: float, queue: _Queue) -> None:
        assert queue.flow is not None
        self._bundles.end(now, self._of_flow.pop(queue.flow), queue.flow)
        queue.flow = None

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
        self._bundles.catch_up(now)
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
        self._bundles.catch_up(now)
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

    def follow_background(self, now: float) -> None:
        """Count background flows up to now, and have them enter as the conditions of devices are."""
        self._bundles.follow(now)

    def background_parts(self, now: float) -> dict[int, float]:
        """Return which part of each background flow shared links have passed since it was counted."""
        return self._bundles.parts(now)


def shared_transfers(
    settings: Settings, background: Background | None = None
) -> SharedTransfers | None:
    """Return a run's transfers between workers and servers if they share links; otherwise None.

    They share the link of an aggregator that faults may take down or slow.
    """
    shares = settings.servers > 1 or any(one.up or one.down for one in settings.network.routes)
    aggregators = range(settings.workers, settings.evaluator)
    shares = shares or any(map(settings.link_is_struck, aggregators))
    return SharedTransfers(settings, conversations(settings), background) if shares else None


def _bits(size: int) -> int:
    return 8 * wire_bytes(size)

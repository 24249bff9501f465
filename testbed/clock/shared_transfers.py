"""Transfers between a server and its workers over links that workers share, under the virtual clock.

A transfer is a flow over the worker's own link and the shared links of its route, with the bytes of all
headers (``testbed.clock.flows``). A worker has one transfer at a time in each direction; others wait.
The route's delays are added when a transfer has ended, and delay nothing else.

What a worker sends is not known when its transfer begins, as the worker still computes it on the host.
The transfer begins with the bytes of a header. At the moment at which that much would have passed the
clock waits for the message, and the transfer gets its real size. No other transfer can end earlier
because of that, so the order of events stays conservative.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from testbed.checkpoints.stateful import Stateful
from testbed.clock import flows
from testbed.clock.flows import Flows
from testbed.network.segments import wire_bytes
from testbed.training.settings import Settings
from testbed.wire.frames import HEADER


@dataclass(slots=True)
class Transfer:
    """A message on its way, or waiting for its turn.

    Attributes:
        worker: the worker that sends or receives it.
        up: True if the worker sends it.
        size: bytes of the message; None if they are not known yet.
        version: the version of the parameters that it brings to the worker; 0 upwards.
    """

    worker: int
    up: bool
    size: int | None
    version: int = 0


@dataclass(slots=True)
class _Queue:
    """One direction of a worker's link: the route, and what takes it; the first of it is on its way."""

    route: tuple[int, ...]
    delay: float
    usual: float
    transfers: deque[Transfer] = field(default_factory=deque)
    flow: int | None = None


STORED: tuple[type, ...] = (Transfer, _Queue, *flows.STORED)
"""The classes in a state, besides plain values and arrays."""


class SharedTransfers(Stateful):
    """All transfers of one run."""

    def __init__(self, settings: Settings) -> None:
        """Begin without transfers.

        Args:
            settings: of a run in which workers share links.
        """
        network = settings.network
        shared = len(network.shared_rates)
        rates = [float(rate) for rate in network.shared_rates]
        self._queues: dict[tuple[int, bool], _Queue] = {}
        for worker in range(settings.workers):
            device, route = settings.device(worker), settings.route(worker)
            assert route is not None
            for up, own, between, delay in (
                (True, device.uplink, route.up, device.delay + route.up_delay),
                (False, device.downlink, route.down, route.down_delay),
            ):
                usual = math.inf if own is None else float(own)
                self._queues[worker, up] = _Queue((len(rates), *between), delay, usual)
                rates.append(usual)
        self._flows = Flows(rates, range(shared))
        self._of_flow: dict[int, tuple[int, bool]] = {}

    def begin(self, now: float, transfer: Transfer) -> None:
        """Let a message leave as soon as all earlier ones of its worker and direction have."""
        queue = self._queues[transfer.worker, transfer.up]
        queue.transfers.append(transfer)
        if len(queue.transfers) == 1:
            self._begin_next(now, queue)

    def _begin_next(self, now: float, queue: _Queue) -> None:
        if queue.transfers:
            first = queue.transfers[0]
            size = HEADER.size if first.size is None else first.size
            queue.flow = self._flows.begin(now, queue.route, _bits(size))
            self._of_flow[queue.flow] = first.worker, first.up

    @property
    def next_end(self) -> float:
        """The time at which the next transfer ends, or its size must be known; inf if none does."""
        ending = self._flows.next_end()
        return math.inf if ending is None else ending[0]

    def ending(self) -> Transfer:
        """Return the transfer that ends next."""
        ending = self._flows.next_end()
        assert ending is not None
        return self._queues[self._of_flow[ending[1]]].transfers[0]

    def measured(self, transfer: Transfer, size: int) -> None:
        """Give a transfer whose size was not known its size in bytes."""
        transfer.size = size
        queue = self._queues[transfer.worker, transfer.up]
        if queue.flow is not None and queue.transfers[0] is transfer:
            self._flows.resize(queue.flow, _bits(size))

    def end(self, now: float, transfer: Transfer) -> float:
        """End the transfer on its way, and begin the next; return when its message arrives."""
        queue = self._queues[transfer.worker, transfer.up]
        self._end_flow(now, queue)
        queue.transfers.popleft()
        self._begin_next(now, queue)
        return now + queue.delay

    def suspend(self, now: float, transfer: Transfer) -> None:
        """Stop the transfer on its way, whose message does not exist yet: its worker is frozen."""
        self._end_flow(now, self._queues[transfer.worker, transfer.up])

    def resume(self, now: float, worker: int) -> None:
        """Begin the suspended transfer of a worker anew."""
        queue = self._queues[worker, True]
        if queue.flow is None:
            self._begin_next(now, queue)

    def _end_flow(self, now: float, queue: _Queue) -> None:
        assert queue.flow is not None
        self._flows.end(now, queue.flow)
        del self._of_flow[queue.flow]
        queue.flow = None

    def has_room(self, worker: int) -> bool:
        """Return True if nothing is on its way down to a worker."""
        return not self._queues[worker, False].transfers

    def uploads(self) -> Iterator[Transfer]:
        """Yield what workers are sending, or have to send, worker by worker in order."""
        for (_, up), queue in self._queues.items():
            if up:
                yield from queue.transfers

    def unmeasured(self, worker: int) -> list[Transfer]:
        """Return what a worker has to send whose size is not known yet, in order."""
        return [one for one in self._queues[worker, True].transfers if one.size is None]

    def drop(self, now: float, worker: int) -> None:
        """Forget all transfers of a worker that is gone."""
        for up in (True, False):
            self._keep(now, self._queues[worker, up], [])

    def drop_uploads(self, now: float, worker: int, *, unmeasured_only: bool) -> None:
        """Forget what a worker sends, or only that of it which does not exist yet."""
        queue = self._queues[worker, True]
        kept = [one for one in queue.transfers if unmeasured_only and one.size is not None]
        self._keep(now, queue, kept)

    def drop_downloads(self, now: float, worker: int) -> None:
        """Forget what is on its way to a worker."""
        self._keep(now, self._queues[worker, False], [])

    def _keep(self, now: float, queue: _Queue, kept: Sequence[Transfer]) -> None:
        """Drop all transfers of a queue but some, the first of which goes on if it is on its way."""
        goes_on = bool(kept) and kept[0] is queue.transfers[0]
        queue.transfers = deque(kept)
        if goes_on:
            return
        if queue.flow is not None:
            self._end_flow(now, queue)
        self._begin_next(now, queue)

    # -- what faults do to a worker's own link

    def set_rates(
        self, now: float, worker: int, uplink: int | None, downlink: int | None, *, is_down: bool
    ) -> None:
        """Change the rates of a worker's own link, in bit/s; None restores the usual one.

        Args:
            is_down: True if nothing passes the link, whatever its rate.
        """
        for up, rate in ((True, uplink), (False, downlink)):
            queue = self._queues[worker, up]
            present = 0.0 if is_down else float(rate) if rate else queue.usual
            self._flows.change(now, queue.route[0], present)


def shared_transfers(settings: Settings) -> SharedTransfers | None:
    """Return a run's transfers if its workers share links with a rate; otherwise None."""
    return SharedTransfers(settings) if settings.network.shared_rates else None


def _bits(size: int) -> int:
    return 8 * wire_bytes(size)

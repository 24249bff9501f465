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
from collections.abc import Iterator
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
        rates: list[int | None] = list(network.shared_rates)
        self._queues: dict[tuple[int, bool], _Queue] = {}
        for worker in range(settings.workers):
            device, route = settings.device(worker), settings.route(worker)
            assert route is not None
            for up, own, between, delay in (
                (True, device.uplink, route.up, device.delay + route.up_delay),
                (False, device.downlink, route.down, route.down_delay),
            ):
                self._queues[worker, up] = _Queue((len(rates), *between), delay)
                rates.append(own)
        limits = [math.inf if rate is None else float(rate) for rate in rates]
        self._flows = Flows(limits, range(shared))
        self._of_flow: dict[int, tuple[int, bool]] = {}

    def begin(self, now: float, transfer: Transfer) -> None:
        """Let a message leave as soon as all earlier ones of its worker and direction have."""
        queue = self._queues[transfer.worker, transfer.up]
        queue.transfers.append(transfer)
        if queue.flow is None:
            self._begin_next(now, queue)

    def _begin_next(self, now: float, queue: _Queue) -> None:
        queue.flow = None
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
        """Give the transfer on its way, whose size was not known, its size in bytes."""
        transfer.size = size
        queue = self._queues[transfer.worker, transfer.up]
        assert queue.flow is not None
        self._flows.resize(queue.flow, _bits(size))

    def end(self, now: float, transfer: Transfer) -> float:
        """End the transfer on its way, and begin the next; return when its message arrives."""
        queue = self._queues[transfer.worker, transfer.up]
        self._end_flow(now, queue)
        queue.transfers.popleft()
        self._begin_next(now, queue)
        return now + queue.delay

    def _end_flow(self, now: float, queue: _Queue) -> None:
        assert queue.flow is not None
        self._flows.end(now, queue.flow)
        del self._of_flow[queue.flow]

    def has_room(self, worker: int) -> bool:
        """Return True if nothing is on its way down to a worker."""
        return self._queues[worker, False].flow is None

    def uploads(self) -> Iterator[Transfer]:
        """Yield what workers are sending, or have to send, worker by worker in order."""
        for (_, up), queue in self._queues.items():
            if up:
                yield from queue.transfers

    def drop(self, now: float, worker: int) -> None:
        """Forget all transfers of a worker that is gone."""
        for up in (True, False):
            queue = self._queues[worker, up]
            if queue.flow is not None:
                self._end_flow(now, queue)
                queue.flow = None
            queue.transfers.clear()


def shared_transfers(settings: Settings) -> SharedTransfers | None:
    """Return a run's transfers if its workers share links with a rate; otherwise None."""
    return SharedTransfers(settings) if settings.network.shared_rates else None


def _bits(size: int) -> int:
    return 8 * wire_bytes(size)

"""The pause before an asking worker may send its update, by the wall clock or by the virtual one."""

import select
import socket
import time
from abc import ABC, abstractmethod

from testbed.roles.orders import OrderKind
from testbed.roles.pace import Draws
from testbed.roles.standstill import Standstill
from testbed.roles.transport.kernel_queues import STALLED
from testbed.roles.transport.receiving import receive_header
from testbed.wire.frames import Kind

LONGEST = 86_400.0
"""Seconds of the longest single wait: the kernel accepts no more than some days."""
ORDER = "the clock's next order"
"""The claim of a worker that has computed and may not send yet: what it waits for."""


class Pause(ABC):
    """The time between the arrival of parameters and the push."""

    @abstractmethod
    def begin(self, gradients: int = 1) -> None:
        """Note that the worker begins to compute so many gradients."""

    @abstractmethod
    def over(self) -> bool:
        """Return True if the worker may send at once."""

    @abstractmethod
    def wait(self, connection: socket.socket) -> bool:
        """Wait until the worker may send; return False if training has ended."""


class WallPause(Pause):
    """A pause by the wall clock: as long as was drawn, or as the host computes if that is longer."""

    def __init__(self, times: Draws) -> None:
        self._times = times
        self._training: float | None = None
        self._until = self._waiting = 0.0

    def begin(self, gradients: int = 1) -> None:
        now = time.monotonic()
        if self._training is None:
            self._training = now
        computing, self._waiting = self._times.draw(now - self._training, gradients)
        self._until = now + computing

    def over(self) -> bool:
        self._until = max(self._until, time.monotonic()) + self._waiting
        self._waiting = 0.0
        return self._until <= time.monotonic()

    @property
    def left(self) -> float:
        """The seconds until the worker may send, once ``over`` was called."""
        return max(0.0, self._until - time.monotonic())

    def wait(self, connection: socket.socket) -> bool:
        # Meanwhile the server sends nothing but STOP, of which one byte is enough to wake.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        while not poll.poll(1000 * min(LONGEST, max(0.0, self._until - time.monotonic()))):
            if self._until <= time.monotonic():
                return True
        receive_header(connection, {Kind.STOP: 0})
        return False


class VirtualPause(Pause):
    """A pause until the virtual clock gets there."""

    def __init__(self, standstill: Standstill) -> None:
        self._orders = standstill.orders
        self._standstill = standstill
        self._order: OrderKind | None = None

    def begin(self, gradients: int = 1) -> None:
        self._order = None

    def over(self) -> bool:
        order = self._orders.take(wait=False)
        self._order = order.what if order else None
        return self._order is OrderKind.FINISHED

    def wait(self, connection: socket.socket) -> bool:
        if self._order is None:
            before, self._standstill.waits_for = self._standstill.waits_for, ORDER
            self._await_server(connection)
            self._standstill.waits_for = before
            order = self._orders.take()
            assert order is not None
            self._order = order.what
        if self._order is OrderKind.FINISHED:
            return True
        # STOP comes over the network as well. A connection that is closed with STOP unread would be
        # reset, and the bytes that it still has to send be lost.
        receive_header(connection, {Kind.STOP: 0})
        return False

    def _await_server(self, connection: socket.socket) -> None:
        """Wait until the clock gives an order.

        Raises:
            ConnectionError: the connection has ended, and with it the clock, without a STOP.
        """
        poll = select.poll()
        poll.register(self._orders, select.POLLIN)
        poll.register(connection, select.POLLRDHUP)
        while not (ready := {fd for fd, _ in poll.poll(1000 * STALLED)}):
            self._standstill.claim()
        if self._orders.fileno() in ready:
            return
        if not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise ConnectionResetError("the server closed the connection")

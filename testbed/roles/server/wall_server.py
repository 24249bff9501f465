"""The parameter server under the wall clock: one that may be killed, and comes back.

Time does not stand still for it. What it applied behind its last checkpoint is lost with it; its
workers connect again, ask again, and go on with the parameters that there are then. Nothing is done a
second time: what they had sent to the dead one is no update.

A checkpoint is written when an update was applied, before anything else is read, so that none is ever
written while gradients of the next version are gathered; and one when training has ended, if the server
may be killed: one that comes back then has only to say so.
"""

import socket
import time

from testbed.roles.server.restoration import CameBack
from testbed.roles.server.server import RETURN_TIMEOUT, Server
from testbed.roles.transport.connection import Connection
from testbed.wire.frames import Frame

BACK_TIMEOUT = 2.0
"""Seconds without a further worker coming back after which those that are there go on."""


class WallServer(Server):
    """Serves one run."""

    # When one of those that are waited for came last. Whoever a fault strikes and brings back again
    # and again in the meantime must not put the others off.
    _last_back: float

    def _train(self, listener: socket.socket) -> None:
        if self._came_back is not None:
            self._go_on_from_checkpoint(self._came_back)
        if self._service.finished:
            self._finished = True
            self._wait_for_the_others(listener)
            return
        super()._train(listener)
        if self._service.finished and self._settings.faults.server_absence is not None:
            self._write_checkpoint()

    def _wait_for_the_others(self, listener: socket.socket) -> None:
        """Training had ended: whoever was not told is on its way."""
        while time.monotonic() - self._last_greeting < BACK_TIMEOUT and (
            self._awaited or (self._evaluations and self._evaluator is None)
        ):
            self._turn(listener)

    def _go_on_from_checkpoint(self, came_back: CameBack) -> None:
        """Be what the server was, but for its workers, who are on their way."""
        assert self._checkpoints is not None
        state = self._checkpoints.newest()
        half = self._service.half
        half.restore(state["half"])
        for worker in state["there"]:
            half.forget(worker)
        self._service.go_on(state["payload_bytes"], state["message_bytes"])
        self._told_at = self._schedule.next_iteration(half.version)
        self._started = came_back.began()
        self._awaited = set(state["there"])
        self._last_greeting = self._last_departure = self._last_back = time.monotonic()
        self._returns = max(self._returns, RETURN_TIMEOUT)
        self._report.send(restored=half.version, there=state["there"])
        self._ask_again(state["evaluations"])

    def _state(self) -> dict[str, object]:
        service = self._service
        ledger = {
            "payload_bytes": service.payload_bytes,
            "message_bytes": service.message_bytes,
        }
        return super()._state() | ledger

    def _before_training(self) -> None:
        if self._checkpoints is not None:  # whoever knows of training may kill this server
            self._write_checkpoint()

    def _handle(self, connection: Connection, frame: Frame) -> None:
        version = self._service.half.version
        super()._handle(connection, frame)
        if self._checkpoints is None or self._service.half.version == version:
            return
        if self._checkpoints.due(self._service.half.version):
            self._write_checkpoint()

    def _greet(self, connection: Connection, frame: Frame) -> None:
        super()._greet(connection, frame)
        if connection.device is not None:
            if connection.device in self._awaited:
                self._last_back = time.monotonic()
            self._awaited.discard(connection.device)
            if not self._finished:
                self._begin_again()

    def _look_after(self) -> None:
        if self._awaited and time.monotonic() - self._last_back > BACK_TIMEOUT:
            self._awaited.clear()
            self._begin_again()
        super()._look_after()

    def _begin_again(self) -> None:
        """Go on, once everybody is back who comes at once: an update may want several."""
        if self._awaited or self._came_back is None or self._service.begun:
            return
        if self._came_back.training is None:
            self._started = self._came_back.began()
            self._report.send(training=self._started)
        self._service.begin_again(self._now())
        self._send_due()

"""The parameter server under the wall clock, which may be killed and restored from a checkpoint.

Time goes on meanwhile. Updates that it applied after its last checkpoint are lost with it; its workers
connect again, ask again, and go on with the restored parameters. Nothing is done a second time: pushes
to the killed server are no updates.

A checkpoint is written when an update was applied, before anything else is read, so never while
gradients of the next version are gathered. One more is written when training has ended, if the server
may be killed: a server restored from it only has to say that training is over.
"""

import socket
import time

from testbed.messages.reports import ServerRestored, TrainingBegun
from testbed.roles.server.restoration import Restart
from testbed.roles.server.server import RETURN_TIMEOUT, Server
from testbed.roles.transport.connection import Connection
from testbed.wire.frames import Frame

BACK_TIMEOUT = 2.0
"""Seconds without another worker coming back after which the connected workers go on."""


class WallServer(Server):
    """The server of one run, under the wall clock."""

    # When an awaited worker came back last. A worker that faults kill and bring back again and again in
    # the meantime must not delay the others.
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
        """Wait for devices that are still to be told that training has ended."""
        while time.monotonic() - self._last_greeting < BACK_TIMEOUT and (
            self._awaited or (self._evaluations and self._evaluator is None)
        ):
            self._handle_events(listener)

    def _go_on_from_checkpoint(self, came_back: Restart) -> None:
        """Restore the checkpoint's state; the workers are still to connect again."""
        assert self._checkpoints is not None
        state = self._checkpoints.newest()
        half = self._service.half
        half.restore(state["half"])
        for worker in state["there"]:
            half.forget(worker)
        self._service.go_on(state["payload_bytes"], state["message_bytes"])
        self._next_fault_iteration = self._schedule.next_iteration(half.version)
        self._started = came_back.began()
        self._awaited = set(state["there"])
        self._last_greeting = self._last_departure = self._last_back = time.monotonic()
        self._returns = max(self._returns, RETURN_TIMEOUT)
        self._report.send(ServerRestored(half.version, state["there"]))
        self._ask_again(state["evaluations"])

    def _state(self) -> dict[str, object]:
        service = self._service
        ledger = {
            "payload_bytes": service.payload_bytes,
            "message_bytes": service.message_bytes,
        }
        return super()._state() | ledger

    def _before_training(self) -> None:
        if self._checkpoints is not None:  # once training is reported, this server may be killed
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
        """Go on once the awaited workers are back, because an update may need several of them."""
        if self._awaited or self._came_back is None or self._service.begun:
            return
        if self._came_back.training is None:
            self._started = self._came_back.began()
            self._report.send(TrainingBegun(self._started))
        self._service.begin_again(self._now())
        self._send_due()

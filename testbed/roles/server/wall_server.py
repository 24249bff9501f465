"""The parameter server under the wall clock: messages are handled in the order in which they arrive.

One thread answers pulls and takes in pushes until the run's number of updates is reached. It never
waits for a device: an evaluation for which the queue has no room is left out, and that is reported.
Training begins when every worker has greeted, or when no further worker has for some seconds; earlier
pulls wait until then, so that all workers start from version 0 together.

The server may be killed and restored from a checkpoint; time goes on meanwhile. Updates that it applied
after its last checkpoint are lost with it; its workers connect again, ask again, and go on with the
restored parameters. Nothing is done a second time: pushes to the killed server are no updates. A
checkpoint is written when an update was applied, before anything else is read, so never while gradients
of the next version are gathered. Two more are written at the end if the server may be killed: one when
training has ended (a server restored from it only has to say so), and one when the evaluator has
reported all, before it is told that it may leave.
"""

import time

from testbed.messages.reports import ServerRestored, TrainingBegun
from testbed.roles.server.draining import drain, patience_of
from testbed.roles.server.parts import Parts
from testbed.roles.server.restoration import Restart
from testbed.roles.server.serving import Serving
from testbed.roles.transport.connection import Connection
from testbed.wire.frames import Frame

BACK_TIMEOUT = 2.0
"""Seconds without another worker coming back after which the connected workers go on."""
OTHERS_TIMEOUT = 600.0
"""Seconds of silence after which a worker is not waited for that may still train with other servers.

The orchestrator ends workers that stay when all servers have said STOP; see ``Liveness.over``.
"""


class WallServer:
    """The server of one run, under the wall clock; a ``Driver`` of its connections."""

    def __init__(self, serving: Serving) -> None:
        self.parts = parts = Parts.of(serving, self, self.now, virtual=False)
        self._phase = parts.phase
        self._report = parts.report
        self._service = parts.service
        self._connections = parts.connections
        self._evaluator = parts.evaluator
        self._arrivals = parts.arrivals
        self._quorum = parts.quorum
        self._checkpoints = serving.checkpoints
        self._restart = serving.restart
        # The workers that were connected before this server was restored.
        self._awaited: set[int] = set()
        # When one of them came back last. A worker that faults kill and bring back again and again in
        # the meantime must not delay the others.
        self._last_back = 0.0

    def serve(self) -> None:
        """Listen, train and drain; return when the last connection is closed."""
        self._connections.listen()
        self._train()
        others = self.parts.settings.servers > 1
        patience = (lambda _: OTHERS_TIMEOUT) if others else patience_of(self.parts)
        drain(self.parts, patience, others=others, settled=self._checkpoint_if_mortal)

    def now(self) -> float:
        """Return the seconds since training began; 0 before that."""
        return self._phase.host_time()

    def _train(self) -> None:
        if self._restart is not None:
            self._go_on_from_checkpoint(self._restart)
        if self._service.finished:
            self._phase.over = True
            self._wait_for_the_others()
            return
        while not self._phase.over:
            self._connections.poll()
            self._look_after()
        if self._service.finished:
            self._checkpoint_if_mortal()

    def _look_after(self) -> None:
        """Go on without awaited workers that are late; every now and then, look after the rest."""
        if self._awaited and time.monotonic() - self._last_back > BACK_TIMEOUT:
            self._awaited.clear()
            self._begin_again()
        if not self._quorum.is_due:
            return
        self._quorum.look(self._start)
        if self._phase.began is not None and not self._phase.over:
            self._arrivals.suspect_silent()
        self._quorum.check()
        self._report.flush()

    def _start(self) -> None:
        if self._phase.began is not None:
            return
        self._phase.began = time.monotonic()
        self.parts.recorder.record(self._service.begin())
        if self._checkpoints is not None:  # once training is reported, this server may be killed
            self._write_checkpoint()
        self._report.send(TrainingBegun(self._phase.began, self._report.server))
        self._arrivals.send_due()

    # -- the connections' driver

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message, and write a checkpoint if one is due after it."""
        before = self._service.half.version
        if connection.device is None:
            self._greet(connection, frame)
        elif connection is self._connections.evaluator:
            self._evaluator.heard(frame.number)
        else:
            self._arrivals.take(connection, frame)
        version = self._service.half.version
        if self._checkpoints is not None and version != before and self._checkpoints.due(version):
            self._write_checkpoint()

    def _greet(self, connection: Connection, frame: Frame) -> None:
        if self._arrivals.greet(connection, frame):
            if self._quorum.is_complete:
                self._start()
            self._arrivals.greeted(connection)
        if connection.device in self._awaited:
            self._last_back = time.monotonic()
            self._awaited.discard(connection.device)
        if not self._phase.over:
            self._begin_again()

    def reads(self, connection: Connection) -> bool:
        """Return True: all connections are read at any time."""
        return True

    def sent(self, connection: Connection) -> None:
        """Send the evaluator more, or the workers that are due: one of them has room again."""
        if connection is self._connections.evaluator:
            self._evaluator.send()
        elif not connection.pending:
            self._arrivals.send_due()

    def lost(self, worker: int) -> None:
        """Go on without a worker; others may have waited for it."""
        self._quorum.departed()
        self._arrivals.leave(worker)

    # -- checkpoints

    def _checkpoint_if_mortal(self) -> None:
        if self.parts.settings.faults.server_absence is not None:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        service = self._service
        self.parts.write_checkpoint(
            self.now(),
            lambda: {"ledger": service.ledger},
        )

    def _go_on_from_checkpoint(self, restart: Restart) -> None:
        """Restore the checkpoint's state; the workers are still to connect again."""
        assert self._checkpoints is not None
        state = self._checkpoints.newest()
        half = self._service.half
        half.restore(state["half"])
        for worker in state["there"]:
            half.forget(worker)
        self._service.go_on(*state["ledger"])
        self.parts.recorder.go_on(half.version)
        self._phase.began = restart.began()
        self._awaited = set(state["there"])
        self._quorum.go_on()
        self._last_back = time.monotonic()
        self._report.send(ServerRestored(half.version, state["there"], server=self._report.server))
        self._evaluator.restore(state["evaluations"])

    def _begin_again(self) -> None:
        """Go on once the awaited workers are back, because an update may need several of them."""
        if self._awaited or self._restart is None or self._service.begun:
            return
        if self._restart.training is None:
            self._phase.began = self._restart.began()
            self._report.send(TrainingBegun(self._phase.began, self._report.server))
        self._service.begin_again(self.now())
        self._arrivals.send_due()

    def _wait_for_the_others(self) -> None:
        """Wait for workers that are still to be told that training has ended."""
        while self._awaited and time.monotonic() - self._quorum.last_greeting < BACK_TIMEOUT:
            self._connections.poll()

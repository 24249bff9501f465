"""The parameter server under the wall clock: messages are handled in the order in which they arrive.

One thread answers pulls and takes in pushes until the run's number of updates is reached. It never
waits for a device: an evaluation for which the queue has no room is left out, and that is reported.

The server may be killed and restored from a checkpoint; time goes on meanwhile. Updates that it applied
after its last checkpoint are lost with it; its workers connect again, ask again, and go on with the
restored parameters. Nothing is done a second time: pushes to the killed server are no updates. A
checkpoint is written when an update was applied, before anything else is read, so never while gradients
of the next version are gathered. Two more are written at the end if the server may be killed: one when
training has ended (a server restored from it only has to say so), and one when the evaluator has
reported all, before it is told that it may leave.
"""

import time

from testbed.engine.events import End, Restored
from testbed.messages.reports import CheckpointBegun, ServerRestored, TrainingBegun
from testbed.roles.server.draining import drain, end, patience_of
from testbed.roles.server.restart import Restart, cannot_be_written
from testbed.roles.server.role_host import RoleHost
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.transport.connection import Connection
from testbed.wire.frames import Frame

OTHERS_TIMEOUT = 600.0
"""Seconds of silence after which a worker is not waited for that may still train with other servers.

The orchestrator ends workers that stay when all servers have said STOP; see ``Liveness.over``.
"""


class WallServer:
    """The server of one run, under the wall clock; a ``Driver`` of its connections."""

    def __init__(self, serving: ServerInputs) -> None:
        self.host = host = RoleHost(serving, self, self.now)
        host.began = self._began
        self._checkpoints = serving.checkpoints
        self._restart = serving.restart

    def serve(self) -> None:
        """Listen, train and drain; return when the last connection is closed."""
        host = self.host
        host.connections.listen()
        if self._restart is not None:
            self._go_on_from_checkpoint(self._restart)
        with host.report.reported():
            while not host.phase.over:
                self._wait()
                self._look_after()
        host.tell(End())
        self._leave()
        if host.service.finished:
            self._checkpoint_if_mortal()
        end(host)
        patience = (lambda _: OTHERS_TIMEOUT) if host.others else patience_of(host)
        drain(host, patience, others=host.others, settled=self._checkpoint_if_mortal)

    def now(self) -> float:
        """Return the seconds since training began; 0 before that."""
        return self.host.phase.host_time()

    def _wait(self) -> None:
        self.host.connections.poll(self.host.patience)

    def _look_after(self) -> None:
        self.host.tell_due()
        self.host.look_after()

    def _leave(self) -> None:
        """End what this role has called itself: nothing, if it is no aggregator."""

    def _began(self) -> None:
        host, restart = self.host, self._restart
        if restart is None:
            host.phase.began = time.monotonic()
            if (
                self._checkpoints is not None
            ):  # once training is reported, this server may be killed
                self._write_checkpoint()
        elif restart.training is None:
            host.phase.began = restart.began()
        else:
            return
        host.report.send(TrainingBegun(host.phase.began, host.report.server))

    # -- the connections' driver

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message, and write a checkpoint if one is due after it."""
        host = self.host
        before = host.service.half.version
        if connection.device is None:
            host.greet(connection, frame)
        else:
            host.take(connection, frame)
        version = host.service.half.version
        if self._checkpoints is not None and version != before and self._checkpoints.due(version):
            self._write_checkpoint()

    def reads(self, connection: Connection) -> bool:
        """Return True: all connections are read at any time."""
        return True

    def sent(self, connection: Connection) -> None:
        """Send the workers that are due something: one of them has room again."""
        if not connection.pending:
            self.host.settle()

    def lost(self, worker: int) -> None:
        self.host.leave(worker)

    # -- checkpoints

    def _checkpoint_if_mortal(self) -> None:
        mortal = self.host.settings.faults.server_absence is not None
        if mortal and self._checkpoints is not None:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        """Write a checkpoint of the current state, which shares the server's memory.

        Raises:
            RunError: it cannot be written; this is no error of the connection that led here.
        """
        assert self._checkpoints is not None
        host, half = self.host, self.host.service.half
        host.report.flush()
        host.report.send(CheckpointBegun(half.version, time.monotonic(), host.report.server))
        try:
            state = {
                "version": half.version,
                "time": self.now(),
                "half": half.state(),
                "there": sorted(host.connections.workers),
                "evaluations": host.connections.evaluator.state(),
                "ledger": host.service.ledger,
                "dealt": host.service.dealt,
            }
            self._checkpoints.write(half.version, state)
        except OSError as error:
            raise cannot_be_written(half.version, error) from error

    def _go_on_from_checkpoint(self, restart: Restart) -> None:
        """Restore the checkpoint's state; the workers are still to connect again."""
        assert self._checkpoints is not None
        host, half = self.host, self.host.service.half
        state = self._checkpoints.newest()
        half.restore(state["half"])
        for worker in state["there"]:
            half.forget(worker)
        host.service.go_on(*state["ledger"])
        host.service.dealt = state["dealt"]
        host.recorder.go_on(half.version)
        host.phase.began = restart.began()
        host.tell(Restored(state["there"]))
        host.report.send(ServerRestored(half.version, state["there"], server=host.report.server))
        host.connections.evaluator.restore(state["evaluations"])

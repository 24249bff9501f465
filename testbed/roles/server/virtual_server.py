"""The parameter server under the virtual clock: messages are handled in the clock's order.

The clock runs in the server's process, with ``EmulatedWorkers`` as its stage. From the moment at which
all workers are there, and have asked if that is the protocol, until the clock has ended, the server
reads from a worker only when the clock waits for that worker's message.
"""

import time
from collections.abc import Sequence
from typing import Any

from testbed.clock import device_use
from testbed.clock.devices import devices
from testbed.clock.faults import star_clock
from testbed.clock.star import StarClock
from testbed.engine.events import End
from testbed.faults.fault import Kind as FaultKind
from testbed.messages.reports import FaultRestored, ServerRestored, TrainingBegun
from testbed.roles.orders import OrderChannel
from testbed.roles.server.draining import DRAIN_TIMEOUT, drain, end
from testbed.roles.server.emulated_workers import EmulatedWorkers
from testbed.roles.server.parts import Parts
from testbed.roles.server.restoration import Restart
from testbed.roles.server.serving import Serving
from testbed.roles.transport.connection import Connection
from testbed.training.times import Times
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.wire.frames import Frame, Kind

STOPPING: tuple[FaultKind, ...] = ("freeze", "stop-network", "partition")
"""Kinds of faults during which nothing arrives from a worker."""


class VirtualServer:
    """The server of one run, under the virtual clock; a ``Driver`` of its connections."""

    def __init__(self, serving: Serving, *, times: Times, channels: list[OrderChannel]) -> None:
        """Make the server of a run.

        Args:
            times: the devices', as the clock draws them.
            channels: for the clock's orders, one per worker.
        """
        self.parts = parts = Parts.of(serving, self, self.now, virtual=True)
        self._settings = parts.settings
        self._phase = parts.phase
        self._report = parts.report
        self._service = parts.service
        self._connections = parts.connections
        self._evaluator = parts.evaluator
        self._host = parts.host
        parts.host.began = self._start
        self._checkpoints = serving.checkpoints
        self._restart = serving.restart
        self._protocol = WORKER_PROTOCOLS[serving.half.protocol]
        self._busy = times.busy()
        self._clock: StarClock | None = None
        self._clock_runs = False
        self._workers = EmulatedWorkers(
            parts,
            channels,
            asks=self._protocol.asks,
            now=self.now,
            wait=self.wait,
            restart=serving.restart,
            remembers=serving.remembers,
        )

    def serve(self) -> None:
        """Listen, train and drain; return when the last connection is closed."""
        self._connections.listen()
        self._train()
        # All have the same time: a suspected worker is late only by the clock.
        self._host.tell(End())
        end(self.parts)
        drain(self.parts, lambda worker: DRAIN_TIMEOUT)

    def now(self) -> float:
        """Return the virtual seconds since training began; 0 before that."""
        return self._clock.now if self._clock else 0.0

    def wait(self) -> None:
        """Wait for a short time for what the kernel reports, handle it, and look after the run."""
        self._connections.poll()
        self._look_after()

    # -- training

    def _train(self) -> None:
        if self._restart is not None:
            self._clock = self._go_on_from_checkpoint(self._restart)
        else:
            while not (self._phase.over or self._gathered()):
                self.wait()
            if self._phase.over:
                return
            self._clock = self._make_clock(sorted(self._connections.workers))
            if self._checkpoints is not None:
                self._write_checkpoint(self._clock)
        for connection in self._connections.workers.values():
            self._connections.watch(connection)  # from here on they are read when it is their turn
        self._clock_runs = True
        self._clock.run(self._between)
        self._clock_runs = False
        self._report.send(device_use.report(self._clock, self._settings))
        self._check_that_all_updates_are_there(self._clock)
        self._clock.drain()
        self._host.tell(End())
        self._workers.close_what_does_not_end(self._workers.active_faults.under(STOPPING))
        self._workers.stop()

    def _gathered(self) -> bool:
        """Return True if all workers are there and, where workers ask, have asked."""
        if self._phase.began is None:
            return False
        workers = self._connections.workers
        return not self._protocol.asks or all(map(self._service.is_asking, workers))

    def _start(self) -> None:
        if self._phase.began is None:
            self._phase.began = time.monotonic()
            self._report.send(TrainingBegun(self._phase.began))

    def _make_clock(self, workers: Sequence[int]) -> StarClock:
        timed = devices(self._settings, workers, self._protocol, self._busy)
        return star_clock([self._service], self._workers, timed, self.parts.schedule)

    def _between(self) -> None:
        """Do what is due between two events of the clock."""
        assert self._clock is not None
        if self._checkpoints is not None and self._checkpoints.due(self._service.half.version):
            self._write_checkpoint(self._clock)
        if self._host.is_look_due:
            self._report.send(device_use.report(self._clock, self._settings))
            self._connections.poll(0)
            self._look_after()
        if self._evaluator.crowded:
            self._wait_for_evaluator()

    def _look_after(self) -> None:
        if not self._clock_runs:  # it finds out itself when no worker will push any more
            self._host.tell_due()
        if self._host.is_look_due:
            self._host.look()
            self._report.flush()

    def _wait_for_evaluator(self) -> None:
        """Wait until there is room for more evaluations, which are a part of the run's result."""
        began = time.monotonic()
        while self._evaluator.crowded:
            self.wait()
            self._evaluator.give_up(began)

    def _check_that_all_updates_are_there(self, clock: StarClock) -> None:
        """Report why the clock has ended before the run's updates were complete, if it has."""
        if self._service.finished:
            return
        server = self.parts.server
        if server.can_go_on:
            self._report.event("error", clock.why_it_ended)
        else:
            self.parts.recorder.record([server.too_few])

    # -- the connections' driver

    def reads(self, connection: Connection) -> bool:
        """Return True if no clock decides when this connection is read, or if it is its turn."""
        free = self._clock is None or self._phase.over
        return free or self._workers.is_read_now(connection)

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message; while the clock runs, a worker's is only kept for it."""
        number = connection.device
        if number is None:
            self._greet(connection, frame)
        elif connection is self._connections.evaluator:
            self._evaluator.heard(frame.number)
        elif self._clock is None:
            self._host.take(connection, frame)
        elif connection is not self._connections.workers.get(number):
            # It was killed, or the clock has not let it come back yet, or never will.
            self._workers.killed_workers.heard(connection, frame)
        elif self._phase.over:
            self._host.take(connection, frame)
        else:
            if frame.kind is not Kind.PULL:
                connection.payload_bytes += len(frame.body)
            self._workers.reading.take(number, frame)

    def sent(self, connection: Connection) -> None:
        """Send the evaluator more; the clock decides when a worker is sent something."""
        if connection is self._connections.evaluator:
            self._evaluator.send()

    def lost(self, worker: int) -> None:
        """Leave it to the clock to find that a worker is gone, when the clock comes to that worker.

        Raises:
            RunError: the worker has gone because it was given an order that it cannot obey.
        """
        if self._clock is None:
            self._host.leave(worker)
        else:
            self._workers.claims(worker)

    # -- greetings

    def _greet(self, connection: Connection, frame: Frame) -> None:
        identity = self._connections.identify(frame)
        number = identity.number
        if self._clock is None or number >= self._settings.workers:
            self._host.greet(connection, frame)
            return
        self._workers.greet(connection, identity, frame.size)

    # -- checkpoints

    def _write_checkpoint(self, clock: StarClock) -> None:
        workers, outstanding, vectors = (
            self._workers,
            self._workers.outstanding,
            self._workers.vectors,
        )
        assert outstanding is not None
        assert vectors is not None
        for worker in range(self._settings.workers):
            vectors.keep(worker, outstanding.needed(worker))

        def more() -> dict[str, Any]:
            return {
                "counts": dict(self.parts.recorder.counts),
                "service": self._service.state(),
                "clock": clock.state(),
                "asked": self._busy.asked,
                "outstanding": outstanding.state(),
                "vectors": vectors.state(),
                "active_faults": workers.active_faults.state(),
                "incarnations": workers.killed_workers.incarnations,
                "killed": sorted(workers.killed_workers),
            }

        self.parts.write_checkpoint(clock.now, more)

    def _go_on_from_checkpoint(self, restart: Restart) -> StarClock:
        """Restore the checkpoint's state, and wait until the workers are connected again."""
        assert self._checkpoints is not None
        workers = self._workers
        assert workers.outstanding is not None
        assert workers.vectors is not None
        state = self._checkpoints.newest()
        self._service.half.restore(state["half"])
        self._service.restore(state["service"])
        self._clock = clock = self._make_clock(range(self._settings.workers))
        clock.restore(state["clock"])
        self._clock_runs = True
        self._busy.go_on(state["asked"])
        workers.outstanding.restore(state["outstanding"])
        workers.vectors.restore(state["vectors"])
        workers.active_faults.restore(state["active_faults"])
        workers.killed_workers.restore(state["killed"], state["incarnations"])
        self.parts.recorder.counts.update(state["counts"])
        workers.awaited = set(state["there"])
        self._phase.began = restart.began()
        self._report.send(
            ServerRestored(state["version"], state["there"], state["counts"], state["incarnations"])
        )
        self._evaluator.restore(state["evaluations"])
        workers.await_all()
        if restart.training is None:
            self._phase.began = restart.began()
            self._report.send(TrainingBegun(self._phase.began))
        for record in workers.active_faults:
            self._report.send(FaultRestored(record))
        return clock

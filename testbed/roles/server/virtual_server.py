"""The parameter server under the virtual clock: the same server, in the clock's order.

The clock runs in the server's process. Workers compute as soon as they have parameters, and send when
the clock has told them that their computation is over. The server reads from a worker only when that
worker's message is the next event, and meanwhile from no other worker.
"""

import hmac
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from testbed.clock.faults import star_clock
from testbed.clock.stage import Arrived
from testbed.clock.star import LATEST, Devices, StarClock
from testbed.clock.transfers import lines
from testbed.errors import RunError
from testbed.faults.active_faults import ActiveFaults
from testbed.faults.fault import Kind as FaultKind
from testbed.messages.reports import (
    FaultReported,
    FaultRestored,
    ServerKillDue,
    ServerRestored,
    TrainingBegun,
)
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.server.outstanding import Outstanding
from testbed.roles.server.restoration import Restart
from testbed.roles.server.server import DRAIN_TIMEOUT, REPORT_PERIOD, Server
from testbed.roles.server.serving import Serving
from testbed.roles.standstill import Suspicion
from testbed.roles.transport.connection import BrokenConnectionError, Connection
from testbed.roles.transport.greeting import Identity
from testbed.roles.transport.kernel_queues import is_idle
from testbed.roles.worker.pulling import STALLED
from testbed.telemetry.records import UpdateRow
from testbed.training.parameter_service import Answer, Pushed
from testbed.training.times import Times
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE
from testbed.wire.frames import HEADER, Frame, Kind, header

PATIENCE = 30.0
"""Seconds of waiting for one worker's message after which a warning is reported, again and again."""
STOPPING: tuple[FaultKind, ...] = ("freeze", "stop-network", "partition")
"""Kinds of faults during which nothing arrives from a worker."""
RETURN_TIMEOUT = 600.0
"""Seconds that a killed worker has to greet, once it is due back.

The run's result depends on whether it returns, and a busy host must not decide that.
"""
COUNTED = ("updates", "evaluations", "faults", "suspicions")
"""Reports that are counted, because the orchestrator drops those that a restored server repeats."""


class VirtualServer(Server):
    """The server of one run; a ``testbed.clock.stage.FaultStage``."""

    _waits_for_evaluator = True  # the host's time is no part of a run's result

    def __init__(
        self, serving: Serving, *, times: Times, local_steps: int, leaves: list[OrderChannel]
    ) -> None:
        """Make the server of a run.

        Args:
            times: the devices', as the clock draws them.
            local_steps: gradients in each computation.
            leaves: the channels to the workers.
        """
        super().__init__(serving)
        settings = serving.settings
        self._counts = Counter(dict.fromkeys(COUNTED, 0))
        self._active_faults = ActiveFaults()
        self._incarnations = [0] * settings.workers
        self._protocol = WORKER_PROTOCOLS[serving.half.protocol]
        self._outstanding: Outstanding | None = None
        if serving.checkpoints is not None:
            self._outstanding = Outstanding(
                settings.workers,
                asks=self._protocol.asks,
                changed=settings.training.pulls == "changed",
            )
        self._order_channels = leaves
        self._busy = times.busy(local_steps)
        self._listener: socket.socket | None = None
        self._clock: StarClock | None = None
        self._reading: Connection | None = None
        self._push: Pushed | None = None
        self._memory = memoryview(bytearray(len(self._scratch)))
        self._sizes: list[int] = []
        self._expected = 2 if self._protocol.asks else 1
        # Frames of messages that came in one read with the message before them, by worker.
        self._read_ahead: dict[int, deque[Frame]] = {}
        self._keep = False
        self._next_fault_iteration = None  # faults at an iteration are the clock's, too
        self._clock_runs = False
        self._away: dict[int, Connection | None] = {}
        self._greetings: dict[int, list[int]] = {}

    def _train(self, listener: socket.socket) -> None:
        self._listener = listener
        if self._came_back is not None:
            self._go_on_from_checkpoint(self._came_back)
        else:
            while not (self._finished or self._gathered()):
                self._handle_events(listener)
                self._look_after()
            if self._finished:
                return
            self._clock = self._make_clock(sorted(self._workers))
            if self._checkpoints is not None:
                self._write_checkpoint()
        assert self._clock is not None
        for connection in self._workers.values():
            self._watch(connection)  # from here on they are read when it is their turn
        self._clock_runs = True
        self._clock.run(self._between)
        self._clock_runs = False
        if not self._service.finished:
            self._check_workers()
            if not self._finished:
                late = f": that would be later than {LATEST:g} s of the run's clock"
                why = late if self._clock.is_beyond else ""
                self._report.event("error", f"nobody will push any more{why}")
        self._clock.drain()
        self._finished = True
        stopped = self._active_faults.under(STOPPING)
        for connection in list(self._connections):
            number = connection.device
            if number is None or connection is self._evaluator:
                continue
            # A worker that is stopped or cut off does not receive STOP, and is not waited for. The end
            # of a worker that was killed while it was cut off may never arrive.
            gone = self._workers.get(number) is not connection
            if gone or number in stopped or number in self._away:
                # Bytes that it sent before its link really went down may still be unread.
                connection.read_out()
                self._close(connection, None)
        for leave in self._order_channels:
            leave.give(OrderKind.STOP)

    def _make_clock(self, workers: Sequence[int]) -> StarClock:
        devices = Devices(
            workers,
            protocol=self._protocol,
            busy=self._busy,
            lines=lambda worker: lines(self._settings, worker),
        )
        return star_clock(self._service, self, devices, self._schedule)

    # -- checkpoints

    def _state(self) -> dict[str, Any]:
        assert self._clock is not None
        assert self._outstanding is not None
        return super()._state() | {
            "counts": dict(self._counts),
            "service": self._service.state(),
            "clock": self._clock.state(),
            "asked": self._busy.asked,
            "outstanding": self._outstanding.state(),
            "standing": self._active_faults.state(),
            "incarnations": self._incarnations,
            "away": sorted(self._away),
        }

    def _go_on_from_checkpoint(self, came_back: Restart) -> None:
        """Restore the checkpoint's state, and wait until the workers are connected again."""
        assert self._checkpoints is not None
        assert self._outstanding is not None
        assert self._listener is not None
        state = self._checkpoints.newest()
        self._service.half.restore(state["half"])
        self._service.restore(state["service"])
        self._clock = self._make_clock(range(self._settings.workers))
        self._clock.restore(state["clock"])
        self._clock_runs = True
        self._busy.go_on(state["asked"])
        self._outstanding.restore(state["outstanding"])
        self._active_faults.restore(state["standing"])
        self._counts.update(state["counts"])
        self._incarnations = state["incarnations"]
        self._away = dict.fromkeys(state["away"])
        self._awaited = set(state["there"])
        self._started = came_back.began()
        self._report.send(
            ServerRestored(state["version"], state["there"], state["counts"], self._incarnations)
        )
        self._ask_again(state["evaluations"])
        deadline = time.monotonic() + RETURN_TIMEOUT
        while self._awaited and time.monotonic() < deadline:
            self._handle_events(self._listener)
            self._look_after()
        for worker in sorted(self._awaited):
            text = f"it did not come back to the server within {RETURN_TIMEOUT:g} s"
            self._report.event("warning", text, worker)
        self._awaited.clear()
        if came_back.training is None:
            self._started = came_back.began()
            self._report.send(TrainingBegun(self._started))
        for record in self._active_faults:
            self._report.send(FaultRestored(record))

    def _greet_again(self, connection: Connection, number: int) -> None:
        """Bring a worker back to where it was at the checkpoint."""
        assert self._outstanding is not None
        again = self._outstanding.again(number)
        base = b"" if again.base is None else as_bytes(again.base)
        connection.send([header(Kind.RESUME, self._size, length=len(base)), base])
        for version, vector in again.frames:
            body = as_bytes(vector)
            head = header(Kind.PARAMETERS, version, encoding=DENSE, length=len(body))
            connection.send([head, body])
        for what, of in again.orders:
            self._order_channels[number].give(what, of)
        connection.device = number
        connection.receiver.accept(self._working)
        self._line.sent(HEADER.size)
        self._workers[number] = connection
        self._awaited.discard(number)
        self._watch(connection)

    def _note(self, number: int, answer: Answer) -> None:
        if self._outstanding is not None:
            ours = answer.vector is self._service.half.parameters
            key = answer.version if ours else (answer.version, number)
            self._outstanding.sent(number, key, answer.version, answer.vector)

    def row(self, row: UpdateRow, version: int) -> None:
        """Record a push that was taken in and led to ``version``."""
        self._counts["updates"] += 1
        super().row(row, version)

    def checkpoint(self) -> None:
        """Handle an evaluation point: report the ledgers' totals, and have this version evaluated."""
        self._counts["evaluations"] += 1
        super().checkpoint()

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        """Report that a worker, silent for ``silent`` seconds, is left out from now on."""
        self._counts["suspicions"] += 1
        super().suspected(worker, silent, time, version)

    def welcomed(self, worker: int, time: float, version: int) -> None:
        """Report that a suspected worker has sent something, and takes part again."""
        self._counts["suspicions"] += 1
        super().welcomed(worker, time, version)

    def _start(self) -> None:
        if self._started is None:
            self._started = time.monotonic()
            self._report.send(TrainingBegun(self._started))

    def _greet(self, connection: Connection, frame: Frame) -> None:
        who = Identity.of(frame.number)
        number = who.number
        if self._clock is None or number >= self._settings.workers:
            super()._greet(connection, frame)
            return
        if not hmac.compare_digest(frame.body, self._secret):
            raise WireError("a greeting without this run's secret")
        if number in self._awaited and who.incarnation == self._incarnations[number]:
            self._greet_again(connection, number)
            return
        if self._came_back and who.kills < self._came_back.kills:
            self._close(connection, None)  # it came back after the checkpoint, and is to be killed
            return
        if number not in self._away:
            raise WireError(f"worker {number} comes when training has begun without it")
        connection.send([header(Kind.WELCOME, self._size)])
        connection.device = number
        connection.receiver.accept(self._working)
        self._line.sent(HEADER.size)
        self._away[number] = connection
        self._greetings[number] = [frame.size]

    def _gathered(self) -> bool:
        """Return True if all workers are there and, where workers ask, have asked."""
        if self._started is None:
            return False
        return not self._protocol.asks or all(map(self._service.is_asking, self._workers))

    def _now(self) -> float:
        return self._clock.now if self._clock else 0.0

    def _between(self) -> None:
        if self._checkpoints is not None and self._checkpoints.due(self._service.half.version):
            self._write_checkpoint()
        now = time.monotonic()
        if now - self._last_report >= REPORT_PERIOD:
            assert self._listener is not None
            self._handle_events(self._listener, 0)
            self._look_after()
        if self._evaluations.crowded:
            self._wait_for_evaluator()

    def _wait_for_evaluator(self) -> None:
        """Wait until there is room for more evaluations, which are a part of the run's result."""
        assert self._listener is not None
        began = time.monotonic()
        while self._evaluations.crowded and self._waits_for_evaluator:
            self._handle_events(self._listener)
            self._look_after()
            self._give_up_evaluator(began)

    def _sent(self, connection: Connection) -> None:
        """Do nothing: the clock decides which worker is sent what."""

    def _left(self, worker: int) -> None:
        """Leave it to the clock to find that a worker is gone, when the clock comes to that worker.

        Raises:
            RunError: the worker has gone because it was given an order that it cannot obey.
        """
        if self._clock is None:
            self._service.leave(worker)
        else:
            self._claims(worker)

    def _check_workers(self) -> None:
        """Check, unless the clock runs, which itself finds out when no worker will push any more."""
        if not self._clock_runs:
            super()._check_workers()

    def _suspect_silent(self) -> None:
        """Do nothing: the clock knows which worker is silent, and for how long."""

    def _drain_patience(self, worker: int) -> float:
        """Return the same for all: a suspected worker is late only by the clock's time."""
        return DRAIN_TIMEOUT

    # -- reading

    def _reads(self, connection: Connection) -> bool:
        if self._clock is None or self._finished or connection.device is None:
            return True
        if self._workers.get(connection.device) is not connection:
            return True
        return connection is self._reading

    def _handle(self, connection: Connection, frame: Frame) -> None:
        number = connection.device
        if number is None or connection is self._evaluator or self._clock is None:
            super()._handle(connection, frame)
        elif connection is not self._workers.get(number):
            # It was killed, or the clock has not let it come back yet, or never will.
            if connection is self._away.get(number):
                self._greetings[number].append(frame.size)
        elif self._finished:
            super()._handle(connection, frame)
        else:
            if frame.kind is not Kind.PULL:
                connection.payload_bytes += len(frame.body)
            self._take(number, frame)

    def _take(self, number: int, frame: Frame) -> None:
        """Take a frame of the worker that is read: of its message, or of its next message."""
        if len(self._sizes) >= self._expected:
            # The clock has not come to the next message yet.
            self._read_ahead.setdefault(number, deque()).append(frame.kept())
        elif frame.kind is Kind.PULL:
            self._sizes.append(frame.size)
        else:
            self._push = self._pushed(frame.kept() if self._keep else self._apart(frame))
            self._sizes.insert(0, frame.size)

    def _apart(self, frame: Frame) -> Frame:
        """Return a frame that stays as it is until the next call.

        A body that came in one read lies in memory into which all connections are read, and others may
        be read before the clock goes on.
        """
        return frame.kept(self._memory) if frame.body.obj is self._scratch.obj else frame

    # -- the clock's stage

    def answer(self, worker: int) -> int:
        """Send a worker that is due its parameters, and return the message's bytes."""
        connection = self._workers.get(worker)
        if connection is None:
            return 0
        if self._came_back and self._outstanding and self._outstanding.is_lost(worker):
            # It can send nothing more, and may lack what it was sent before: it needs no parameters.
            return HEADER.size + sum(map(len, self._service.answer(worker).body))
        try:
            return self._answer(connection, worker)
        except BrokenConnectionError as error:
            self._close(connection, f"{error}")
            return 0

    def arrived(self, worker: int, version: int) -> None:
        """Tell a listening worker that parameters have arrived; a worker that asks sees that itself."""
        if self._outstanding is not None and not self._outstanding.is_lost(worker):
            self._outstanding.arrived(worker, version)
        if not self._protocol.asks:
            self._order_channels[worker].give(OrderKind.ARRIVED, version)

    def compute(self, worker: int, version: int) -> None:
        """Note that a worker computes at a version, which it does as soon as it can."""
        if self._outstanding is not None:
            self._outstanding.begun(worker, version)

    def finish(self, worker: int, late: bool) -> None:
        """Tell a worker that its computation is over."""
        if self._outstanding is not None:
            self._outstanding.told(worker, late=late)
        self._order_channels[worker].give(OrderKind.FINISHED)

    def receive(self, worker: int, keep: bool) -> Arrived | None:
        """Wait for the message of a worker that has finished, and return it; None if it is gone.

        Raises:
            RunError: the worker waits for the server, so that nothing can happen any more, or it was
                given an order that it cannot obey.
        """
        connection = self._workers.get(worker)
        if connection is None:
            return None
        assert self._listener is not None
        self._push, self._keep, self._reading = None, keep, connection
        self._sizes.clear()
        self._watch(connection)
        kept = self._read_ahead.pop(worker, None) or deque()
        while kept:  # frames beyond this message are kept again
            self._take(worker, kept.popleft())
        began = told = time.monotonic()
        suspicion = Suspicion()
        while len(self._sizes) < self._expected and connection in self._connections:
            self._handle_events(self._listener)
            self._look_after()
            if time.monotonic() - began > STALLED:
                self._check_standstill(worker, connection, suspicion)
            if time.monotonic() - told > PATIENCE:
                told += PATIENCE
                self._report.event("warning", f"nothing heard for {PATIENCE:g} s", worker)
        self._reading = None
        if connection not in self._connections or self._push is None:
            self._claims(worker)
            return None
        self._watch(connection)
        if self._outstanding is not None:
            self._outstanding.received(worker)
        return Arrived(self._push, tuple(self._sizes))

    def _claims(self, worker: int) -> list[str]:
        """Return what a worker has claimed, since the last call, to wait for.

        Raises:
            RunError: it was given an order that it cannot obey.
        """
        told = self._order_channels[worker].heard()
        for one in told:
            if "broken" in one:
                raise RunError(f"worker-{worker}: {one['broken']}")
        return [one["waits_for"] for one in told if "waits_for" in one]

    def _check_standstill(self, worker: int, connection: Connection, suspicion: Suspicion) -> None:
        """End the run if the worker whose message is waited for waits for this server."""
        if connection not in self._connections or connection.device is None:
            return
        claims = self._claims(worker)
        idle = not connection.pending and is_idle(connection.socket)
        if suspicion.confirmed(claims, idle=idle):
            raise RunError(
                f"nothing can happen any more: {self._clock_time()} the server waits for the message "
                f"of worker-{worker}, which waits for {claims[-1]}, and nothing is under way between "
                "them; please report it with the experiment file"
            )

    def _clock_time(self) -> str:
        return f"at {self._now():.6g} s of the run's clock"

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began."""
        assert self._started is not None
        return time.monotonic() - self._started

    def refuse(self, worker: int, error: ValueError) -> None:
        """Close the connection of a worker that sent what it must not."""
        connection = self._workers.get(worker)
        if connection is not None:
            self._close(connection, f"{error}")

    # -- faults

    def fault(self, record: dict[str, Any]) -> None:
        """Report the begin or end of a fault to the orchestrator, which carries it out."""
        self._counts["faults"] += 1
        self._active_faults.take(record)
        self._report.flush()
        self._report.send(FaultReported(record))

    def server_killed(self, number: int, begin: dict[str, Any], end: dict[str, Any]) -> None:
        """Have the orchestrator kill this process, unless it was restarted after that already."""
        if self._came_back is not None and number <= self._came_back.kills:
            self.fault(begin)
            self.fault(end)
            return
        self._report.flush()
        self._report.send(ServerKillDue(number, begin))
        while True:
            signal.pause()

    def lose(self, worker: int) -> None:
        """Note that a worker is frozen or cut off for good, so that nothing more comes from it."""
        if self._outstanding is not None:
            self._outstanding.lose(worker)

    def killed(self, worker: int) -> None:
        """Note that a worker is killed: what its connection still brings, until it ends, is ignored."""
        connection = self._workers.pop(worker, None)
        self._read_ahead.pop(worker, None)
        if connection is not None:
            self._watch(connection)  # for its end
        self._away[worker] = None
        self._incarnations[worker] += 1
        self._active_faults.killed(worker)
        if self._outstanding is not None:
            self._outstanding.lose(worker)

    def returned(self, worker: int, incarnation: int) -> Sequence[int] | None:
        """Wait until a killed worker has greeted and, where workers ask, has asked.

        Returns:
            Bytes of each of these messages; None if the worker did not come back.
        """
        assert self._listener is not None
        expected = 2 if self._protocol.asks else 1
        deadline = time.monotonic() + RETURN_TIMEOUT
        while len(self._greetings.get(worker, ())) < expected:
            if time.monotonic() > deadline:
                text = f"it did not come back within {RETURN_TIMEOUT:g} s"
                self._report.event("warning", text, worker)
                return None
            self._handle_events(self._listener)
            self._look_after()
        connection = self._away.pop(worker)
        sizes = self._greetings.pop(worker)
        if connection is None or connection not in self._connections:
            return None
        self._workers[worker] = connection
        self._watch(connection)
        if self._outstanding is not None:
            self._outstanding.returned(worker)
        return sizes

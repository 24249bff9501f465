"""One of several servers under the virtual clock, which runs in another process and drives it.

The server has its slice of the parameters, its connections and the messages of its workers. What it
does with them, and when, the clock says (``testbed.messages.driving``). Until all workers are there it
acts by itself.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.channel import Channel
from testbed.encoding_choice import EncodingChoice
from testbed.messages import driving
from testbed.messages.codec import send
from testbed.messages.driving import REQUESTS, Gathered, Outcome
from testbed.roles.evaluation.pending import Asked
from testbed.roles.server.draining import DRAIN_TIMEOUT, drain
from testbed.roles.server.emulated_workers import EmulatedWorkers
from testbed.roles.server.parts import Parts
from testbed.roles.server.serving import Serving
from testbed.roles.transport.connection import Connection
from testbed.training.parameter_service import Pushed, apply_update
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.updates import Update, as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import Codec
from testbed.wire.frames import Frame, Kind


class DrivenServer:
    """One of the servers of a run; a ``Driver`` of its connections."""

    def __init__(self, serving: Serving, clock: Channel) -> None:
        """Make the server.

        Args:
            clock: to the process with the clock.
        """
        self.parts = parts = Parts.of(serving, self, lambda: self._time, virtual=True)
        self._clock = clock
        self._half = serving.half
        self._callers = serving.settings.callers(serving.index)
        self._connections = parts.connections
        self._asks = WORKER_PROTOCOLS[serving.half.protocol].asks
        self._exact = Codec(EncodingChoice(), serving.layout.sizes)
        self._time = 0.0
        self._gathering = True
        self._stopped = False
        self._sizes: dict[int, list[int]] = {}
        # By worker: the updates that were received and not applied, each with its number.
        self._received: dict[int, deque[tuple[int, Update]]] = {}
        self._updates = 0
        self._workers = EmulatedWorkers(
            parts,
            (),
            asks=self._asks,
            now=lambda: self._time,
            wait=parts.connections.poll,
            server_kills=None,
        )
        self._handlers: dict[type, Callable[[Any], Any]] = {
            driving.Pull: lambda r: self._half.pull(r.worker, time=r.time) is not None,
            driving.Answer: self._answer,
            driving.Receive: self._receive,
            driving.Apply: self._apply,
            driving.Reported: self._reported,
            driving.Join: lambda r: self._half.joined(r.worker),
            driving.Forget: lambda r: self._half.forget(r.worker),
            driving.Diagnose: lambda _: dict(self._half.diagnose()),
            driving.Evaluate: self._evaluate,
            driving.LookAtEvaluator: lambda _: parts.evaluator.crowded,
            driving.Killed: lambda r: self._killed(r.worker),
            driving.Return: lambda r: self._workers.returned(r.worker, 0),
            driving.Refuse: lambda r: self._workers.refuse(r.worker, ValueError(r.reason)),
            driving.Stop: lambda _: self._stop(),
        }

    def serve(self) -> None:
        """Listen, do what the clock says, and drain; return when the last connection is closed."""
        self._connections.listen()
        self._gather()
        self._gathering = False
        workers = sorted(self._connections.workers)
        for connection in self._connections.workers.values():
            self._connections.watch(connection)  # from here on they are read when it is their turn
        send(self._clock, Gathered(workers, [self._sizes[worker] for worker in workers]))
        self._obey()
        drain(self.parts, lambda worker: DRAIN_TIMEOUT)

    def _gather(self) -> None:
        """Wait until all workers are there."""
        while not self._gathered:
            self._connections.poll()
            self.parts.quorum.look(self._start)

    @property
    def _gathered(self) -> bool:
        """True if all workers are there and, where workers ask, have asked."""
        asked = 2 if self._asks else 1
        there = self._connections.workers
        return self.parts.phase.began is not None and all(
            len(self._sizes[worker]) >= asked for worker in there
        )

    def _start(self) -> None:
        self.parts.phase.began = time.monotonic()

    def _obey(self) -> None:
        """Do what the clock says, until training is over.

        Raises:
            ConnectionError: the clock is gone.
        """
        self._connections.also(self._clock)
        while True:
            while not self._clock.readable(0):
                self._connections.poll()
            request = REQUESTS.receive(self._clock)
            if request is None:
                raise ConnectionResetError("the virtual clock is gone")
            if isinstance(request, driving.End):
                self._end(request)
                return
            value, error = None, None
            try:
                value = self._handlers[type(request)](request)
            except ValueError as found:
                error = f"{found}"
            send(self._clock, self._outcome(value, error))

    def _outcome(self, value: Any, error: str | None) -> Outcome:
        return Outcome(value, self._half.version, error)

    # -- requests

    def _answer(self, request: driving.Answer) -> int:
        vector = self._half.outgoing(request.worker)
        encoding, body = self._exact.encode(self._half.changed_since(vector, request.sent))

        def answer(connection: Connection) -> int:
            size = self.parts.arrivals.send(connection, self._half.version, encoding, body)
            if self._stopped:
                self._connections.say_stop([connection])
            return size

        return self._workers.send_to(request.worker, answer)

    def _receive(self, request: driving.Receive) -> list[Any] | None:
        arrived = self._workers.receive(request.worker, keep=True)
        if arrived is None:
            return None
        push, number = arrived.push, None
        if push.update is not None:
            number = self._updates
            self._updates += 1
            self._received.setdefault(request.worker, deque()).append((number, push.update))
        told = (push.base_version, number, push.payload_bytes, push.loss, push.count)
        return [*told, list(arrived.sizes)]

    def _apply(self, request: driving.Apply) -> int | None:
        received = self._received[request.worker]
        while received[0][0] < request.update:
            received.popleft()  # it came from a suspected worker, and counts for nothing
        _, update = received.popleft()
        push = Pushed(request.base_version, update, 0, request.loss, request.count)
        return apply_update(self._half, request.worker, push, request.time)

    def _reported(self, request: driving.Reported) -> None:
        self._half.finished(request.worker, request.base_version, time=request.time)

    def _evaluate(self, request: driving.Evaluate) -> bool:
        self._time = request.time
        half, evaluator = self._half, self.parts.evaluator
        asked = Asked(half.version, request.time, *request.ledger)
        evaluator.ask(asked, as_bytes(half.parameters), last=request.last)
        return evaluator.crowded

    def _killed(self, worker: int) -> None:
        self._received.pop(worker, None)
        self._workers.killed(worker)

    def _stop(self) -> None:
        self._stopped = True
        self._connections.say_stop(self._connections.workers.values())

    def _end(self, request: driving.End) -> None:
        self.parts.service.go_on(*request.ledger)
        self.parts.phase.over = True
        self._gathering = True  # all connections are read again
        self._workers.close_what_does_not_end(request.unreachable)

    # -- the connections' driver

    def reads(self, connection: Connection) -> bool:
        """Return True if no clock decides when this connection is read, or if it is its turn."""
        return self._gathering or self._workers.is_read_now(connection)

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message; while the clock runs, a worker's is only kept for it."""
        number = connection.device
        if number is None:
            self._greet(connection, frame)
        elif connection is self._connections.evaluator:
            self.parts.evaluator.heard(frame.number)
        elif self.parts.phase.over:
            self.parts.service.count_late(number, frame.size)
        elif connection is not self._connections.workers.get(number):
            self._workers.killed_workers.heard(connection, frame)
        elif self._gathering:
            self._sizes[number].append(frame.size)
        else:
            if frame.kind is not Kind.PULL:
                connection.payload_bytes += len(frame.body)
            self._workers.reading.take(number, frame)

    def _greet(self, connection: Connection, frame: Frame) -> None:
        identity = self._connections.identify(frame)
        number, killed = identity.number, self._workers.killed_workers
        evaluator = self.parts.evaluator
        if number == evaluator.number:
            self._connections.welcome(connection)
            evaluator.greeted(connection)
            return
        if self.parts.phase.over:
            self._connections.welcome(connection)
            self._connections.is_worker(connection, number)
            self._connections.say_stop([connection])
            return
        if not self._gathering and number in killed:
            self._connections.welcome(connection)
            self._connections.is_worker(connection, number)
            killed.greeted(number, connection, frame.size)
            return
        known = number in self._callers and number not in self._connections.workers
        if not self._gathering or not known:
            raise WireError(f"worker {number} comes when training has begun without it")
        self._connections.welcome(connection)
        self._connections.is_worker(connection, number)
        self._connections.workers[number] = connection
        self._sizes[number] = [frame.size]
        self.parts.quorum.greeted()
        if self.parts.quorum.is_complete:
            self._start()

    def sent(self, connection: Connection) -> None:
        """Send the evaluator more; the clock decides when a worker is sent something."""
        if connection is self._connections.evaluator:
            self.parts.evaluator.send()

    def lost(self, worker: int) -> None:
        """Leave it to the clock to find that a worker is gone, when the clock comes to that worker."""
        self.parts.quorum.departed()

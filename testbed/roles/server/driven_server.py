"""A server under the virtual clock, which drives it: in the same process, or one of several in another.

The server has its slice of the parameters, its connections and the messages of its workers. What it
does with them, and when, the clock says (``testbed.messages.clock_requests``). Until all workers are
there it acts by itself. If another server is killed, it ends its connections and is made anew, with
the state that the clock's process gives it back.
"""

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.channel import Channel
from testbed.checkpoints.records import state_as_bytes, state_of_bytes
from testbed.checkpoints.stateful import State
from testbed.encoding_choice import EncodingChoice
from testbed.engine.server import GATHERING_TIMEOUT
from testbed.messages import clock_requests
from testbed.messages.clock_requests import REQUESTS, AnyRequest, Outcome, Request, WorkerMessage
from testbed.messages.codec import send
from testbed.messages.reports import DevicesConnected
from testbed.roles.evaluation.evaluator_link import Asked
from testbed.roles.server.draining import DRAIN_TIMEOUT, await_ends, begin_to_end, drain, end
from testbed.roles.server.emulated_workers import EmulatedWorkers
from testbed.roles.server.restart import STORED, Restart
from testbed.roles.server.role_host import RoleHost, measured
from testbed.roles.server.server_connections import REPORT_PERIOD
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.transport.connection import Connection
from testbed.training.parameter_service import Pushed
from testbed.updates import Update, as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import Codec
from testbed.wire.frames import HEADER, Frame, Kind


def serve_driven(
    make: Callable[[Restart | None], "DrivenServer"], clock: Channel, restart: Restart | None
) -> None:
    """Run a server, and a new one each time that it goes back because another one is killed.

    Args:
        make: returns a server that begins, or waits for its state.

    Raises:
        ConnectionError: the clock is gone.
    """
    while (kills := _serve(make(restart), clock, goes_on=restart is not None)) is not None:
        restart = Restart(kills, None)


def _serve(server: "DrivenServer", clock: Channel, *, goes_on: bool) -> int | None:
    """Listen, do what the clock says, and drain; return when the last connection is closed.

    Returns:
        None; or the number of kills of servers after which this one is to be made anew.
    """
    if goes_on:
        request = _next_request(clock)
        assert isinstance(request, clock_requests.Restore)
        send(clock, server.do(request))
    server.begin()
    server.host.connections.also(clock.fileno())
    while True:
        while not clock.readable(0):
            server.wait()
        request = _next_request(clock)
        send(clock, server.do(request))
        match request:
            case clock_requests.EndTraining():
                server.finish()
                return None
            case clock_requests.GoBack(kills):
                server.read_out()
                return kills
            case clock_requests.AwaitKill():
                while True:
                    signal.pause()


def _next_request(clock: Channel) -> AnyRequest:
    request = REQUESTS.receive(clock)
    if request is None:
        raise ConnectionResetError("the virtual clock is gone")
    return request


class DrivenServer:
    """One of the servers of a run; a ``Driver`` of its connections."""

    def __init__(self, serving: ServerInputs) -> None:
        """Make the server, which waits for a state if it goes on from a checkpoint."""
        self._restart = serving.restart
        self.host = host = RoleHost(serving, self, None)
        self._half = serving.half
        self._callers = serving.settings.callers(serving.index)
        self._connections = host.connections
        self._asks = serving.half.protocol == "pull"
        self._exact = Codec(EncodingChoice(), serving.layout.sizes)
        self._apply_update = measured(host.line)
        self._gathering = True
        self._there: list[int] | None = None
        self._ending: Sequence[Connection] = ()
        self._last_greeting = time.monotonic()
        self._crowded_since: float | None = None
        self._stopped = False
        self._sizes: dict[int, list[int]] = {}
        # By worker: the updates that were received and not applied, each with its number.
        self._received: dict[int, deque[tuple[int, Update]]] = {}
        self._updates = 0
        self._workers = EmulatedWorkers(
            host,
            asks=self._asks,
            wait=self.wait,
            restart=serving.restart,
            remembers=serving.remembers,
        )
        self._handlers: dict[type, Callable[[Any], Any]] = {
            clock_requests.Gather: lambda _: self.gather(),
            clock_requests.TakePull: lambda r: self._half.pull(r.worker, time=r.time) is not None,
            clock_requests.Answer: self._answer,
            clock_requests.Receive: self._receive,
            clock_requests.Apply: self._apply,
            clock_requests.Reported: self._reported,
            clock_requests.Join: lambda r: self._half.joined(r.worker),
            clock_requests.Forget: lambda r: self._half.forget(r.worker),
            clock_requests.Diagnose: lambda _: dict(self._half.diagnose()),
            clock_requests.Evaluate: self._evaluate,
            clock_requests.LookAtEvaluator: lambda _: self._look_at_evaluator(),
            clock_requests.Killed: lambda r: self._killed(r.worker),
            clock_requests.Return: lambda r: self._workers.returned(r.worker),
            clock_requests.Refuse: lambda r: self._workers.refuse(r.worker, r.reason),
            clock_requests.Hear: lambda r: self._workers.receive(r.worker, keep=False, alone=True),
            clock_requests.Expire: lambda _: self._half.expire(),
            clock_requests.Restore: self._restore,
            clock_requests.GoBack: lambda _: self._go_back(),
            clock_requests.AwaitKill: lambda _: None,
            clock_requests.StopWorkers: lambda _: self._stop(),
            clock_requests.EndTraining: self._end,
        }

    # -- gathering

    def begin(self) -> None:
        """Wait for all workers, or go on from a checkpoint, to which they come back meanwhile.

        Those that are back may be killed before the clock goes on, as they could not have noticed that
        another server was killed, and then come once more.
        """
        if self._restart is None:
            self.gather()
        else:
            self._call()

    def gather(self) -> Sequence[tuple[int, Sequence[int]]]:
        """Wait, once, until all workers are there, or those that were at a checkpoint are back."""
        if self._there is None:
            self._await_workers()
            self._there = sorted(self._connections.workers)
        return [(worker, self._sizes.get(worker, [])) for worker in self._there]

    def _await_workers(self) -> None:
        if self._restart is None:
            self._connections.listen()
            self._gather()
        else:
            self._workers.await_all()
            if self._stopped:
                self._stop()
        self._gathering = False
        for connection in self._connections.workers.values():
            self._connections.watch(connection)  # from here on they are read when it is their turn

    def _gather(self) -> None:
        """Wait until all workers are there, or no other one has come for some time."""
        while not self._gathered:
            self.wait()
            late = time.monotonic() > self._last_greeting + GATHERING_TIMEOUT
            if late and self.host.phase.began is None:
                missing = len(self._callers) - len(self._connections.workers)
                self.host.report.event("warning", f"training begins without {missing} workers")
                self._start()

    @property
    def _gathered(self) -> bool:
        """True if all workers are there and, where workers ask, have asked."""
        asked = 2 if self._asks else 1
        there = self._connections.workers
        return self.host.phase.began is not None and all(
            len(self._sizes[worker]) >= asked for worker in there
        )

    def _start(self) -> None:
        self.host.phase.began = time.monotonic()

    def wait(self, patience: float = REPORT_PERIOD) -> None:
        """Wait for a short time for what the kernel reports, handle it, and look after the run."""
        self._connections.poll(patience)
        self.host.look_after()

    # -- what the clock says

    def do(self, request: Request[Any]) -> Outcome:
        if isinstance(request, clock_requests.Save):
            return self._save(request)
        value, error = None, None
        try:
            value = self._handlers[type(request)](request)
        except UnexpectedMessageError as found:
            error = f"{found}"
        return self.outcome(value, error)

    def outcome(self, value: Any = None, error: str | None = None) -> Outcome:
        return Outcome(value, self._half.version, error, deadline=self._half.deadline)

    def _end(self, request: clock_requests.EndTraining) -> None:
        """End training: what comes is counted, and no update any more."""
        self.host.service.go_on(*request.ledger)
        self.host.phase.over = True
        self._gathering = True  # all connections are read again
        self._workers.close_what_does_not_end(request.unreachable)

    def finish(self) -> None:
        """Say STOP, and drain; return when the last connection is closed."""
        end(self.host)
        # All have the same time: a suspected worker is late only by the clock.
        drain(self.host, lambda worker: DRAIN_TIMEOUT)

    # -- checkpoints

    def _save(self, request: clock_requests.Save) -> Outcome:
        """Return the state, and note what workers would have to be sent again."""
        workers, vectors = self._workers, self._workers.vectors
        assert vectors is not None
        for worker, versions in request.needed:
            vectors.keep(worker, versions)
        there = sorted(self._connections.workers)
        state = {
            "half": self._half.state(),
            "evaluations": self._connections.evaluator.state(),
            "there": there,
            "vectors": vectors.state(),
            "received": self._received,
            "updates": self._updates,
            "legs": dict(workers.ended_legs),
            "incarnations": workers.incarnations,
            "killed": sorted(workers.away),
            "stopped": self._stopped,
            **self._more_state(request),
        }
        return replace(self.outcome(there), raw=state_as_bytes(state, STORED))

    def _more_state(self, request: clock_requests.Save) -> State:
        """Return what an aggregator has in its state in addition."""
        return {}

    def _restore(self, request: clock_requests.Restore) -> None:
        """Take the state of a checkpoint, and listen; ``gather`` waits for the workers."""
        state = state_of_bytes(request.raw, STORED)
        workers = self._workers
        assert workers.vectors is not None
        self._half.restore(state["half"])
        workers.vectors.restore(state["vectors"])
        workers.incarnations, workers.away = state["incarnations"], dict.fromkeys(state["killed"])
        self._received, self._updates = state["received"], state["updates"]
        self._stopped = state["stopped"]
        workers.ended_legs.update(state["legs"])
        workers.awaited = set(state["there"])
        self._restore_more(state)
        self.host.phase.began = time.monotonic()
        self._connections.listen()
        self._connections.evaluator.restore(state["evaluations"])

    def _restore_more(self, state: State) -> None:
        """Restore what ``_more_state`` has returned."""

    def _call(self) -> None:
        """Connect an aggregator to its server."""

    def _go_back(self) -> None:
        self._ending = begin_to_end(self.host)

    def read_out(self) -> None:
        """Read all connections to their ends, as another server is killed."""
        await_ends(self.host, self._ending)

    # -- requests

    def _answer(self, request: clock_requests.Answer) -> int:
        vector = self._half.outgoing(request.worker)
        encoding, body = self._exact.encode(self._half.changed_since(vector, request.sent))
        known = request.worker, self._half.version, vector, request.needed
        self._workers.note(*known, dealt=request.dealt)

        def answer(connection: Connection) -> int:
            if request.needed is None and self._restart is not None:
                # It can send nothing more, and may lack what it was sent before.
                return HEADER.size + sum(map(len, body))
            size = self.host.send(
                connection, self._half.version, encoding, body, dealt=request.dealt
            )
            if self._stopped:
                self._connections.say_stop([connection])
            return size

        return self._workers.send_to(request.worker, answer)

    def _receive(self, request: clock_requests.Receive) -> WorkerMessage | None:
        arrived = self._workers.receive(request.worker, keep=request.keep)
        if arrived is None or arrived.push is None:
            return None if arrived is None else WorkerMessage(arrived.sizes)
        push, number = arrived.push, None
        if push.update is not None:
            number = self._updates
            self._updates += 1
            self._received.setdefault(request.worker, deque()).append((number, push.update))
        told = (push.base_version, number, push.payload_bytes, push.loss, push.count)
        return WorkerMessage(arrived.sizes, *told)

    def _apply(self, request: clock_requests.Apply) -> int | None:
        received = self._received[request.worker]
        while received[0][0] < request.update:
            received.popleft()  # it came from a suspected worker, and counts for nothing
        _, update = received.popleft()
        push = Pushed(request.base_version, update, 0, request.loss, request.count)
        return self._apply_update(self._half, request.worker, push, request.time)

    def _reported(self, request: clock_requests.Reported) -> None:
        self._half.finished(request.worker, request.base_version, time=request.time)

    def _evaluate(self, request: clock_requests.Evaluate) -> bool:
        half, evaluator = self._half, self._connections.evaluator
        asked = Asked(half.version, request.time, request.ledger)
        evaluator.ask(asked, as_bytes(half.parameters), last=request.last)
        return evaluator.crowded

    def _look_at_evaluator(self) -> bool:
        """Return True if too many evaluations wait; give an evaluator up that does not go on."""
        self.wait(0)
        evaluator, now = self._connections.evaluator, time.monotonic()
        self._crowded_since = (self._crowded_since or now) if evaluator.crowded else None
        if self._crowded_since is not None:
            evaluator.give_up(self._crowded_since)
        return evaluator.crowded

    def _killed(self, worker: int) -> None:
        self._received.pop(worker, None)
        self._workers.killed(worker)

    def _stop(self) -> None:
        self._stopped = True
        self._connections.say_stop(self._connections.workers.values())

    # -- the connections' driver

    def reads(self, connection: Connection) -> bool:
        """Return True if no clock decides when this connection is read, or if it is its turn."""
        return self._workers.is_read_now(connection) or (
            self._gathering and not self._is_sent_again(connection)
        )

    def _is_sent_again(self, connection: Connection) -> bool:
        """Return True if an aggregator that is back sends what this restored server had not read.

        It does so at once, and the clock comes to that when all are back.
        """
        number, waits = connection.device, self._restart is not None and not self.host.phase.over
        return waits and number is not None and number >= self.host.settings.workers

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message; while the clock runs, a worker's is only kept for it."""
        number = connection.device
        if number is None:
            self._greet(connection, frame)
        elif connection is not self._connections.workers.get(number):
            # It was killed, or comes back when training is over: by the clock it has sent nothing.
            self._workers.heard(number, connection, frame.size)
        elif self.host.phase.over:
            self.host.service.count_late(number, frame.size)
        elif self._gathering:
            self._sizes[number].append(frame.size)
        else:
            if frame.kind is not Kind.PULL:
                connection.payload_bytes += len(frame.body)
            self._workers.reading.take(number, frame)

    def _greet(self, connection: Connection, frame: Frame) -> None:
        identity = self._connections.identify(frame)
        number = identity.number
        if self.host.phase.over and self._workers.is_earlier(identity):
            self._connections.close(connection, None)
            return
        if self.host.phase.over:
            self._connections.welcome(connection)
            self._connections.is_worker(connection, number)
            self._connections.say_stop([connection])
            return
        if not self._gathering or self._restart is not None:
            before = self._connections.workers.get(number)
            if self._gathering and before is not None:
                self._connections.close(before, None)  # whose end has not been noticed
            self._workers.greet(connection, identity, frame.size)
            return
        if number not in self._callers or number in self._connections.workers:
            raise WireError(f"device {number} is not of this server, or is connected already")
        self._connections.welcome(connection)
        self._connections.is_worker(connection, number)
        self._connections.workers[number] = connection
        self._sizes[number] = [frame.size]
        self._last_greeting = time.monotonic()
        there = len(self._connections.workers)
        self.host.report.send(DevicesConnected(there, self.host.report.server))
        if there == len(self._callers):
            self._start()

    def sent(self, connection: Connection) -> None:
        """Do nothing: the clock decides when a worker is sent something."""

    def lost(self, worker: int) -> None:
        """Leave it to the clock to find that a worker is gone, when the clock comes to that worker."""
        if self._gathering and self._restart is not None:
            self._workers.awaited.add(worker)  # another server that it calls was not back yet

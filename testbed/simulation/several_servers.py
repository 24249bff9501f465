"""The simulated workers of several parameter servers: a ``testbed.clock.stage.FaultStage``.

They compute for real, and send nothing: each server takes in what it would read from its messages. A
worker computes once, when the first server needs its part of the update.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.clock.conversations import Conversations
from testbed.clock.stage import Arrived
from testbed.counted_copies import CountedCopies
from testbed.learning.data.batches import Draw
from testbed.learning.learner import Learner
from testbed.simulation.wire_model import ModelledConnection
from testbed.training.parameter_service import ParameterService, Pushed, as_loss
from testbed.training.sliced_computation import SlicedComputation
from testbed.training.slices import Slice
from testbed.updates import FloatVector
from testbed.wire.frames import HEADER, SECRET_SIZE


@dataclass(slots=True, eq=False)
class BegunParts:
    """A computation that a worker has begun.

    Attributes:
        keys: of the parameters, by server.
        versions: of the parameters, by server.
        drawn: the mini-batch of each local step.
        messages: the message to each server, once they are computed.
    """

    keys: tuple[Hashable, ...]
    versions: Sequence[int]
    drawn: Sequence[Draw]
    messages: list[Arrived] | None = None


class WorkersOfSeveralServers:
    """All simulated workers of a run with several servers."""

    def __init__(
        self,
        services: Sequence[ParameterService],
        cut: Sequence[Slice],
        computations: Sequence[SlicedComputation],
        learner: Learner,
        *,
        asks: bool,
        co_located: int,
        new_incarnation: Callable[[int, int], SlicedComputation],
        on_fault: Callable[[dict[str, Any]], None],
    ) -> None:
        """Connect all workers to all services, and have them ask if that is the protocol.

        Args:
            cut: the servers' slices of the parameters.
            computations: by the workers' numbers.
            learner: whose parameters no server has.
            asks: True if workers ask for parameters.
            co_located: the number of servers on the machines of workers, the first ones.
            new_incarnation: makes the computation of a worker that was killed, from its number and
                incarnation.
            on_fault: called with every fault's record.
        """
        self._services = services
        self._cut = cut
        self._computations = list(computations)
        self._learner = learner
        self._asks = asks
        self._co_located = co_located
        self._new_incarnation = new_incarnation
        self._on_fault = on_fault
        self._numbers = Conversations(len(services))
        self._versions: list[CountedCopies[FloatVector]] = [CountedCopies() for _ in services]
        conversations = len(services) * len(computations)
        self._wire = [ModelledConnection() for _ in range(conversations)]
        # By conversation: the parameters that were sent, of which the first may have been used.
        self._there: list[deque[tuple[Hashable, int]]] = [deque() for _ in range(conversations)]
        self._outbox: list[deque[BegunParts | int]] = [deque() for _ in range(conversations)]
        self._computing: list[BegunParts | None] = [None] * len(computations)
        # By conversation, the version of the last push.
        self._pushed: list[int | None] = [None] * conversations
        self._lost: set[int] = set()
        self._connected: set[int] = set()
        self._began = time.monotonic()
        for worker in range(len(computations)):
            sizes = self._greet(worker)
            for service in services:
                service.join(worker)
                for size in sizes:
                    service.count(worker, size)
                if asks:
                    service.asked(worker)

    def _greet(self, worker: int) -> Sequence[int]:
        """Connect a worker to all servers; return the bytes of the messages that it sends each."""
        self._connected.add(worker)
        sizes = [HEADER.size + SECRET_SIZE] + [HEADER.size] * self._asks
        for number in self._numbers.of_worker(worker):
            self._wire[number].greeted(sizes, answer=HEADER.size)
        return sizes

    def wire_bytes(self, server: int) -> int:
        """Return the modelled wire bytes that entered a server, but for those on its own machine."""
        own = enumerate(self._wire[server :: self._numbers.servers])
        return sum(
            connection.to_server.wire_bytes
            for worker, connection in own
            if not self._is_local(worker, server)
        )

    def _is_local(self, worker: int, server: int) -> bool:
        """Return True if a conversation is within one machine."""
        return worker == server < self._co_located

    @property
    def over_links(self) -> Sequence[tuple[int, int]]:
        """By conversation: the modelled wire bytes that the worker has sent, and received.

        Those of conversations within one machine are none of any link.
        """
        return [connection.wire_bytes for connection in self._wire]

    def close(self) -> None:
        """End all connections."""
        for worker in self._connected:
            for number in self._numbers.of_worker(worker):
                self._wire[number].stopped(HEADER.size)
        self._connected.clear()

    def resume_after(self, host_seconds: float) -> None:
        """Note that ``host_seconds`` of the host's clock have passed already."""
        self._began = time.monotonic() - host_seconds

    # -- the clock's stage

    def answer(self, conversation: int) -> int:
        """Send a worker the parameters that it is due; return the message's bytes."""
        worker, server = self._numbers.worker(conversation), self._numbers.server(conversation)
        service = self._services[server]
        answer = service.answer(worker)
        if worker not in self._lost:
            own = answer.vector is not service.half.parameters
            key: Hashable = (answer.version, worker) if own else answer.version
            self._versions[server].hold(key, answer.vector)
            self._there[conversation].append((key, answer.version))
        size = HEADER.size + sum(map(len, answer.body))
        self._wire[conversation].sent(size)
        return size

    def arrived(self, conversation: int, version: int) -> None:
        """Note that parameters have arrived; older ones may still be needed."""
        if self._pushed[conversation] == version:
            # The server had suspected the worker, and starts anew.
            self._pushed[conversation] = None

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        """Begin the worker's computation; what it was computing is dropped."""
        before = self._computing[worker]
        if before is not None:
            self._drop(before)
        keys = []
        for number, version in zip(self._numbers.of_worker(worker), versions, strict=True):
            there, copies = self._there[number], self._versions[self._numbers.server(number)]
            while there[0][1] < version:
                copies.release(there.popleft()[0])
            key, sent = there[0]
            assert sent == version
            copies.hold(key, copies[key])
            keys.append(key)
        drawn = self._computations[worker].draw()
        self._computing[worker] = BegunParts(tuple(keys), tuple(versions), drawn)

    def _drop(self, begun: BegunParts) -> None:
        """Release the parameters of a computation that is over, or no longer needed."""
        for copies, key in zip(self._versions, begun.keys, strict=True):
            copies.release(key)
        begun.keys = ()

    def finish(self, worker: int, late: bool) -> None:
        """End the worker's computation.

        A server whose version the worker has pushed for before only gets a report.
        """
        begun = self._computing[worker]
        assert begun is not None
        self._computing[worker] = None
        pushes = False
        for number, version in zip(self._numbers.of_worker(worker), begun.versions, strict=True):
            only_reports = late or (not self._asks and self._pushed[number] == version)
            self._outbox[number].append(version if only_reports else begun)
            if not only_reports:
                pushes = True
                self._pushed[number] = version
        if not pushes:
            self._drop(begun)

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        """Return what the worker sends to the server of the conversation."""
        server = self._numbers.server(conversation)
        begun = self._outbox[conversation].popleft()
        if isinstance(begun, int):
            arrived = Arrived(Pushed(begun, None, 0, math.nan), (HEADER.size,))
        else:
            if begun.messages is None:
                begun.messages = self._compute(self._numbers.worker(conversation), begun)
            arrived = begun.messages[server]
        self._wire[conversation].pushed(arrived.size)
        return arrived

    def _compute(self, worker: int, begun: BegunParts) -> list[Arrived]:
        """Compute, and return the message to each server."""
        computation, learner = self._computations[worker], self._learner
        for part, copies, key in zip(self._cut, self._versions, begun.keys, strict=True):
            np.copyto(learner.parameters[part.start : part.stop], copies[key])
        self._drop(begun)
        gradient, loss = computation.gradient(learner, begun.drawn, min(begun.versions))
        pull = (HEADER.size,) * self._asks
        return [
            Arrived(
                Pushed(version, update.copy(), size, as_loss(loss)), (HEADER.size + size, *pull)
            )
            for version, (size, update) in zip(
                begun.versions, computation.measure_parts(gradient), strict=True
            )
        ]

    # -- what goes wrong

    def fault(self, record: dict[str, Any]) -> None:
        """Report the fault's record; nothing is to be made real here."""
        self._on_fault(record)

    def server_killed(self, number: int, begin: dict[str, Any], end: dict[str, Any]) -> None:
        """Raise an error: the experiment file's conflicts allow no such fault."""
        raise AssertionError("one of several servers cannot be killed")

    def lose(self, worker: int) -> None:
        """Drop what a worker was computing or had to send, and what it is sent from now on."""
        self._lost.add(worker)
        of_worker = self._numbers.of_worker(worker)
        begun: dict[int, BegunParts] = {
            id(one): one
            for one in (self._computing[worker], *(b for n in of_worker for b in self._outbox[n]))
            if isinstance(one, BegunParts) and one.keys
        }
        for one in begun.values():
            self._drop(one)
        for number in of_worker:
            for key, _ in self._there[number]:
                self._versions[self._numbers.server(number)].release(key)
            self._there[number].clear()
            self._outbox[number].clear()
        self._computing[worker] = None

    def killed(self, worker: int) -> None:
        """Drop everything that a worker had, and its connections."""
        self.lose(worker)
        self._connected.remove(worker)
        for number in self._numbers.of_worker(worker):
            self._wire[number].closed()

    def returned(self, worker: int, incarnation: int) -> Sequence[int]:
        """Start a killed worker anew; return the bytes of the messages that it sends each server."""
        self._lost.remove(worker)
        self._computations[worker] = self._new_incarnation(worker, incarnation)
        for number in self._numbers.of_worker(worker):
            self._pushed[number] = None
        return self._greet(worker)

    def host_time(self) -> float:
        """Return the seconds of the host's clock since the simulation began."""
        return time.monotonic() - self._began

    def refuse(self, conversation: int, error: ValueError) -> None:
        """Raise an error: only a bug makes a simulated worker send an invalid message."""
        raise AssertionError(f"conversation {conversation}: {error}")

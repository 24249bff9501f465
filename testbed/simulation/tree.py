"""The simulated workers and aggregators of a server: a ``testbed.clock.stage.FaultStage``.

They compute for real, and send nothing: each service takes in what it would read from its messages. A
conversation has the number of its worker, and an aggregator is a worker of the server
(``testbed.clock.conversations.Tree``).
"""

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.clock.conversations import Conversations
from testbed.clock.stage import Arrived
from testbed.counted_copies import CountedCopies
from testbed.learning.learner import Learner
from testbed.simulation.batching import Begun
from testbed.simulation.wire_model import ModelledConnection
from testbed.training.aggregator_service import AggregatorService
from testbed.training.computation import Computation
from testbed.training.parameter_service import ParameterService, Pushed, as_loss
from testbed.updates import FloatVector
from testbed.wire.encodings import Codec
from testbed.wire.frames import HEADER, SECRET_SIZE


class SimulatedTree:
    """All simulated workers and aggregators of a run.

    A gradient is computed when its message is taken in, and not at all if it never is.
    """

    def __init__(
        self,
        server: ParameterService,
        aggregators: Sequence[AggregatorService],
        computations: Sequence[Computation],
        learner: Learner,
        codec: Codec,
        *,
        conversations: Conversations,
        on_fault: Callable[[dict[str, Any]], None],
    ) -> None:
        """Connect workers to aggregators and these to the server; all of them ask for parameters.

        Args:
            computations: by the workers' numbers.
            learner: whose parameters no service has.
            codec: encodes what aggregators push.
            on_fault: called with every fault's record.
        """
        self._services: list[ParameterService] = [server, *aggregators]
        self._aggregators = list(aggregators)
        self._computations = list(computations)
        self._learner = learner
        self._codec = codec
        self._numbers = conversations
        self._on_fault = on_fault
        count = len(computations) + len(aggregators)
        # By server: the versions that it has sent and that are still needed.
        self._versions: list[CountedCopies[FloatVector]] = [CountedCopies() for _ in self._services]
        self._wire = [ModelledConnection() for _ in range(count)]
        # By conversation: the parameters that were sent and not used yet.
        self._there: list[deque[tuple[Hashable, int]]] = [deque() for _ in range(count)]
        self._computing: list[Begun | None] = [None] * count
        self._outbox: list[deque[Begun | Arrived]] = [deque() for _ in range(count)]
        self._began = time.monotonic()
        for worker in range(count):
            service = self._services[conversations.server(worker)]
            service.join(worker)
            for size in self._greet(worker):
                service.count(worker, size)
            service.asked(worker)

    def _greet(self, worker: int) -> Sequence[int]:
        """Connect a worker; return the bytes of the messages that it sends."""
        sizes = (HEADER.size + SECRET_SIZE, HEADER.size)
        self._wire[worker].greeted(sizes, answer=HEADER.size)
        return sizes

    def wire_bytes(self, server: int) -> int:
        """Return the modelled wire bytes that entered the server, or an aggregator from below."""
        return sum(
            connection.to_server.wire_bytes
            for number, connection in enumerate(self._wire)
            if self._numbers.server(number) == server
        )

    @property
    def over_links(self) -> Sequence[tuple[int, int]]:
        """By conversation: the modelled wire bytes that its worker has sent, and received."""
        return [connection.wire_bytes for connection in self._wire]

    def close(self) -> None:
        """End all connections."""
        for connection in self._wire:
            connection.stopped(HEADER.size)

    def resume_after(self, host_seconds: float) -> None:
        """Note that ``host_seconds`` of the host's clock have passed already."""
        self._began = time.monotonic() - host_seconds

    # -- the clock's stage

    def answer(self, conversation: int) -> int:
        """Send a worker the parameters that it is due; return the message's bytes."""
        server = self._numbers.server(conversation)
        service = self._services[server]
        answer = service.answer(conversation)
        assert answer.vector is service.half.parameters
        self._versions[server].hold(answer.version, answer.vector)
        self._there[conversation].append((answer.version, answer.version))
        size = HEADER.size + sum(map(len, answer.body))
        self._wire[conversation].sent(size)
        return size

    def arrived(self, conversation: int, version: int) -> None:
        """Note that parameters have arrived; release older ones that were not used."""
        there = self._there[conversation]
        while there and there[0][1] < version:
            self._versions[self._numbers.server(conversation)].release(there.popleft()[0])

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        """Begin the worker's computation; what it was computing is dropped."""
        (version,) = versions
        before = self._computing[worker]
        if before is not None:
            self._copies(worker).release(before.key)
        key, sent = self._there[worker].popleft()
        assert sent == version
        self._computing[worker] = Begun(key, version, self._computations[worker].draw())

    def _copies(self, worker: int) -> CountedCopies[FloatVector]:
        return self._versions[self._numbers.server(worker)]

    def adopt(self, worker: int, version: int, time: float) -> None:
        """Make an aggregator's service take over parameters that have arrived."""
        key, sent = self._there[worker].popleft()
        assert sent == version
        self._service(worker).adopt(self._versions[0][key], version, time)
        self._versions[0].release(key)

    def _service(self, worker: int) -> AggregatorService:
        index = self._numbers.below(worker)
        assert index is not None
        return self._aggregators[index - 1]

    def finish(self, worker: int, late: bool) -> None:
        """End a worker's computation, or take what an aggregator has combined."""
        assert not late, "workers that ask are never late"
        if self._numbers.below(worker) is not None:
            self._outbox[worker].append(self._combined(worker))
            return
        begun = self._computing[worker]
        assert begun is not None
        self._computing[worker] = None
        self._outbox[worker].append(begun)

    def _combined(self, worker: int) -> Arrived:
        half = self._service(worker).half
        assert isinstance(half, AggregatorHalf)
        combined = half.take()
        update = combined.update
        size, received = self._codec.measure(update), self._codec.rounded(update)
        if self._codec.lossy:
            half.lost(update, received)
        push = Pushed(
            combined.base_version, received.copy(), size, as_loss(combined.loss), combined.count
        )
        return Arrived(push, (HEADER.size + size, HEADER.size))

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        """Return what a worker sends."""
        sent = self._outbox[conversation].popleft()
        arrived = sent if isinstance(sent, Arrived) else self._computed(conversation, sent)
        self._wire[conversation].pushed(arrived.size)
        return arrived

    def _computed(self, worker: int, begun: Begun) -> Arrived:
        computation, copies = self._computations[worker], self._copies(worker)
        np.copyto(self._learner.parameters, copies[begun.key])
        copies.release(begun.key)
        gradient, loss = computation.gradient(self._learner, begun.drawn, begun.version)
        size, update = computation.measure(gradient)
        push = Pushed(begun.version, update.copy(), size, as_loss(loss))
        return Arrived(push, (HEADER.size + size, HEADER.size))

    # -- what goes wrong: the experiment file's conflicts allow no faults here

    def fault(self, record: dict[str, Any]) -> None:
        """Report the fault's record; nothing is to be made real here."""
        self._on_fault(record)

    def server_killed(self, number: int, begin: dict[str, Any], end: dict[str, Any]) -> None:
        """Raise an error: there are no faults."""
        raise AssertionError("a server above aggregators cannot be killed")

    def lose(self, worker: int) -> None:
        """Raise an error: there are no faults."""
        raise AssertionError("no fault can strike a worker of an aggregator")

    def killed(self, worker: int) -> None:
        """Raise an error: there are no faults."""
        self.lose(worker)

    def returned(self, worker: int, incarnation: int) -> Sequence[int]:
        """Raise an error: there are no faults."""
        raise AssertionError("no worker of an aggregator was killed")

    def host_time(self) -> float:
        """Return the seconds of the host's clock since the simulation began."""
        return time.monotonic() - self._began

    def refuse(self, conversation: int, error: ValueError) -> None:
        """Raise an error: only a bug makes a simulated worker send an invalid message."""
        raise AssertionError(f"conversation {conversation}: {error}")

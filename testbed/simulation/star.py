"""The simulated workers of a parameter server: a ``testbed.clock.stage.FaultStage``.

They compute for real, and send nothing: the server takes in what it would read from their messages. An
update is only measured, not encoded, where measuring takes less time.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from testbed.checkpoints.stateful import Stateful
from testbed.clock import faults
from testbed.clock.stage import Arrived
from testbed.counted_copies import CountedCopies
from testbed.learning.data.batches import Draw
from testbed.learning.data.datasets import Dataset
from testbed.learning.learner import Learner
from testbed.simulation.batching import Batching, Begun
from testbed.simulation.wire_model import Acknowledgements, ModelledConnection, ModelledIngress
from testbed.training.computation import Computation
from testbed.training.parameter_service import ParameterService, Pushed, as_loss
from testbed.training.settings import Settings
from testbed.training.worker_protocols import WorkerProtocol
from testbed.updates import DenseUpdate, FloatVector, SparseUpdate, Update
from testbed.wire.frames import HEADER, SECRET_SIZE

ENOUGH_UPDATES = 10
"""Updates per worker from which gradients are computed immediately: up to one per worker is wasted."""

STORED = (*faults.STORED, Begun, Draw, ModelledConnection, ModelledIngress, Acknowledgements)
"""The classes in the state of a clock with these workers, besides plain values and arrays."""


class ServerKilledError(Exception):
    """The server is killed, in the middle of an event: its system can no longer be used."""


class SimulatedWorkers(Stateful):
    """All simulated workers of a run.

    Where a worker is certain to send what it computes, and has its parameters as soon as they are sent,
    its gradient is computed immediately, at the server's own parameters, without a copy. Otherwise it
    is computed when its message is taken in, and not at all if it never is. The result is the same: a
    gradient depends only on the version and the mini-batch that was drawn.

    Attributes:
        server_kills: how often the server was killed, and has come back.
    """

    not_saved = frozenset(
        {
            "_service",
            "_computations",
            "_of_server",
            "_learner",
            "_loaded",
            "_asks",
            "_at_once",
            "_gradients",
            "_began",
            "_new_incarnation",
            "_on_fault",
            "_deals",
            "server_kills",
        }
    )

    def __init__(
        self,
        service: ParameterService,
        computations: Sequence[Computation],
        learners: tuple[Learner, Learner],
        *,
        protocol: type[WorkerProtocol],
        instant: bool,
        settings: Settings,
        dataset: Dataset,
        new_incarnation: Callable[[int, int], Computation],
        on_fault: Callable[[dict[str, Any]], None],
    ) -> None:
        """Connect all workers to the service, and have them ask if that is the protocol.

        Args:
            computations: by the workers' numbers.
            learners: one whose parameters are the server's own memory, and another one.
            protocol: how workers get parameters.
            instant: True if parameters arrive when they are sent.
            settings: the run's settings.
            dataset: the dataset that is learnt.
            new_incarnation: makes the computation of a worker that was killed, from its number and
                incarnation.
            on_fault: called with every fault's record.
        """
        self._service = service
        self._computations = list(computations)
        self._new_incarnation = new_incarnation
        self._on_fault = on_fault
        self.server_kills = 0
        self._lost: set[int] = set()
        self._connected: set[int] = set()
        self._of_server, self._learner = learners
        self._loaded: Hashable = None
        self._asks = protocol.asks
        count = len(computations)
        local = computations[0].half.local_steps > 1
        worthwhile = (
            settings.training.updates >= ENOUGH_UPDATES * count and not settings.data.batched
        )
        prompt = instant and not any(map(_delays, settings.faults.rules))
        self._at_once = protocol.certain and prompt and worthwhile and not local
        self._deals = settings.data.partition["kind"] == "stream"
        # By worker: the numbers of the mini-batches that it was dealt, by version.
        self._dealt: list[dict[int, int]] = [{} for _ in range(count)]
        self._versions: CountedCopies[FloatVector] = CountedCopies()
        self._batching: Batching | None = None
        if settings.data.batched and not local:
            self._batching = Batching(settings, dataset, self._versions)
        self._wire = [ModelledConnection() for _ in range(count)]
        self._there: list[deque[tuple[Hashable, int]]] = [deque() for _ in range(count)]
        self._computing: list[Begun | None] = [None] * count
        self._outbox: list[deque[Begun | int]] = [deque() for _ in range(count)]
        self._computed: list[Arrived | None] = [None] * count
        self._gradients: list[FloatVector | None] = [None] * count
        self._began = time.monotonic()
        for worker in range(count):
            service.join(worker)
            for size in self._greet(worker):
                service.count(worker, size)
            if self._asks:
                service.asked(worker)

    def _greet(self, worker: int) -> Sequence[int]:
        """Connect a worker; return the bytes of the messages that it sends."""
        self._connected.add(worker)
        sizes = [HEADER.size + SECRET_SIZE] + [HEADER.size] * self._asks
        self._wire[worker].greeted(sizes, answer=HEADER.size)
        return sizes

    @property
    def over_links(self) -> Sequence[tuple[int, int]]:
        """The modelled wire bytes that each worker has sent to the server, and received from it."""
        return [connection.wire_bytes for connection in self._wire]

    @property
    def wire_bytes(self) -> int:
        """The modelled wire bytes that entered the server."""
        return sum(connection.to_server.wire_bytes for connection in self._wire)

    def close(self) -> None:
        """End all connections."""
        for worker in self._connected:
            self._wire[worker].stopped(HEADER.size)
        self._connected.clear()

    def state(self) -> dict[str, Any]:
        """Return everything but the data, and what can be made again."""
        computations = [computation.state() for computation in self._computations]
        return super().state() | {"computations": computations}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; parameters are loaded anew."""
        own = dict(state)
        for computation, saved in zip(self._computations, own.pop("computations"), strict=True):
            computation.restore(saved)
        super().restore(own)
        self._loaded = None

    def resume_after(self, host_seconds: float) -> None:
        """Note that ``host_seconds`` of the host's clock have passed already."""
        self._began = time.monotonic() - host_seconds

    # -- the clock's stage

    def answer(self, worker: int) -> int:
        """Send a worker the parameters that it is due; return the message's bytes."""
        answer = self._service.answer(worker)
        half, vector, version = self._service.half, answer.vector, answer.version
        needed = worker not in self._lost
        if needed and self._deals:
            self._dealt[worker][version] = answer.dealt
        if needed and not (self._at_once and vector is half.parameters):
            key: Hashable = version if vector is half.parameters else (version, worker)
            self._versions.hold(key, vector)
            self._there[worker].append((key, version))
        size = HEADER.size + sum(map(len, answer.body))
        self._wire[worker].sent(size)
        return size

    def arrived(self, worker: int, version: int) -> None:
        """Note that parameters have arrived; release older ones that the worker did not compute at."""
        if self._deals:
            dealt = self._dealt[worker]
            self._dealt[worker] = {one: number for one, number in dealt.items() if one >= version}
        sent = self._there[worker]
        while sent and sent[0][1] < version:
            self._versions.release(sent.popleft()[0])

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        """Begin the worker's computation; what it was computing is dropped."""
        (version,) = versions
        before = self._computing[worker]
        if before is not None:
            self._drop(before)
        drawn = self._computations[worker].draw(self._dealt[worker][version] if self._deals else 0)
        if not self._there[worker]:
            assert version == self._service.half.version
            gradient, loss = self._computations[worker].gradient(self._of_server, drawn, version)
            self._computed[worker] = self._message(worker, version, gradient, loss)
            return
        key, sent = self._there[worker].popleft()
        assert sent == version
        self._computing[worker] = begun = Begun(key, version, drawn)
        if self._batching is not None:
            self._batching.begin(begun)

    def _drop(self, begun: Begun) -> None:
        """Release a computation that is no longer needed, and its parameters."""
        if self._batching is None:
            self._versions.release(begun.key)
        else:
            self._batching.drop(begun)

    def finish(self, worker: int, late: bool) -> None:
        """End the worker's computation."""
        if self._computed[worker] is not None:
            return
        begun = self._computing[worker]
        assert begun is not None
        self._computing[worker] = None
        if late:
            self._drop(begun)
        self._outbox[worker].append(begun.version if late else begun)

    def receive(self, worker: int, keep: bool) -> Arrived | None:
        """Return what the worker sends."""
        computed = self._computed[worker]
        if computed is not None:
            self._computed[worker] = None
            self._wire[worker].pushed(computed.size)
            return computed
        begun = self._outbox[worker].popleft()
        if isinstance(begun, int):
            self._wire[worker].pushed(HEADER.size)
            return Arrived(Pushed(begun, None, 0, math.nan), (HEADER.size,))
        gradient, loss = self._gradient(worker, begun)
        arrived = self._message(worker, begun.version, gradient, loss, keep=keep)
        self._wire[worker].pushed(arrived.size)
        return arrived

    def _gradient(self, worker: int, begun: Begun) -> tuple[FloatVector, float]:
        if self._batching is not None:
            return self._batching.result(begun)
        computation = self._computations[worker]
        if self._loaded != begun.key or computation.half.local_steps > 1:
            np.copyto(self._learner.parameters, self._versions[begun.key])
            self._loaded = begun.key
        self._versions.release(begun.key)
        return computation.gradient(self._learner, begun.drawn, begun.version)

    def _message(
        self, worker: int, version: int, gradient: FloatVector, loss: float, *, keep: bool = True
    ) -> Arrived:
        size, received = self._computations[worker].measure(gradient)
        update = self._kept(worker, received) if keep else received
        sizes: tuple[int, ...] = (HEADER.size + size,)
        if self._asks:
            sizes += (HEADER.size,)
        return Arrived(Pushed(version, update, size, as_loss(loss)), sizes)

    def _kept(self, worker: int, update: Update) -> Update:
        """Return a copy; one of a dense update may lie in memory that the worker keeps for it."""
        if isinstance(update, SparseUpdate) or not self._at_once:
            return update.copy()
        memory = self._gradients[worker]
        if memory is None:
            memory = self._gradients[worker] = np.empty_like(update.values)
        np.copyto(memory, update.values)
        return DenseUpdate(memory)

    # -- what goes wrong

    def fault(self, record: dict[str, Any]) -> None:
        """Report the fault's record; nothing is to be made real here."""
        self._on_fault(record)

    def server_killed(self, number: int, begin: dict[str, Any], end: dict[str, Any]) -> None:
        """Raise ServerKilledError, unless the server has come back from this kill already."""
        self._on_fault(begin)
        if number > self.server_kills:
            raise ServerKilledError
        self._on_fault(end)

    def lose(self, worker: int) -> None:
        """Drop what a worker was computing or had to send, and what it is sent from now on."""
        self._lost.add(worker)
        for begun in (*self._outbox[worker], self._computing[worker]):
            if isinstance(begun, Begun):
                self._drop(begun)
        for key, _ in self._there[worker]:
            self._versions.release(key)
        self._outbox[worker].clear()
        self._there[worker].clear()
        self._computing[worker] = self._computed[worker] = None

    def killed(self, worker: int) -> None:
        """Drop everything that a worker had, and its connection."""
        self.lose(worker)
        self._connected.remove(worker)
        self._wire[worker].closed()

    def returned(self, worker: int, incarnation: int) -> Sequence[int]:
        """Start a killed worker anew; return the bytes of the messages that it sends."""
        self._lost.remove(worker)
        self._computations[worker] = self._new_incarnation(worker, incarnation)
        return self._greet(worker)

    def host_time(self) -> float:
        """Return the seconds of the host's clock since the simulation began."""
        return time.monotonic() - self._began

    def refuse(self, worker: int, error: ValueError) -> None:
        """Raise an error: only a bug makes a simulated worker send an invalid message."""
        raise AssertionError(f"worker {worker}: {error}")


def _delays(rule: Mapping[str, Any]) -> bool:
    """Return True if a rule makes parameters arrive later than they are sent."""
    faults = [rule["fault"], *(row[-1] for row in rule.get("trace", ()))]
    return any(
        fault.get("downlink") or (fault["duration"] and fault["kind"] not in ("kill", "slow"))
        for fault in faults
    )

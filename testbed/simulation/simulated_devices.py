"""The simulated workers and aggregators around servers: a ``testbed.clock.stage.Stage``.

They compute for real, and send nothing: each service takes in what it would read from their messages.
An update is only measured, not encoded, where measuring takes less time. Which worker talks to which
server is said by ``testbed.clock.conversations``; an aggregator is a worker of what is above it.
"""

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from testbed.algorithms.aggregator_half import AggregatorHalf, Combined
from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.checkpoints.stateful import Stateful
from testbed.clock import peer_faults, worker_faults
from testbed.clock.conversations import conversations
from testbed.clock.stage import Arrived, ServerKilledError
from testbed.learning.data.batches import Draw
from testbed.messages.fault_changes import FaultChange
from testbed.simulation.batching import Begun
from testbed.simulation.computing import Computations
from testbed.simulation.sent_versions import Part
from testbed.simulation.system import EvaluatedVersion
from testbed.simulation.wire_model import Acknowledgements, ModelledConnection
from testbed.training import computation
from testbed.training.aggregator_service import AggregatorService
from testbed.training.computation import Drawn
from testbed.training.parameter_service import ParameterService, Pushed, as_loss
from testbed.training.pushed_parts import PushedParts
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.updates import checked
from testbed.wire.frames import HEADER, SECRET_SIZE

STORED = (
    *{*worker_faults.STORED, *peer_faults.STORED},
    Begun,
    Draw,
    Drawn,
    EvaluatedVersion,
    ModelledConnection,
    Acknowledgements,
)
"""The classes in the state of a system with these devices, besides plain values and arrays."""


class SimulatedDevices(Stateful):
    """All simulated workers and aggregators of a run.

    Attributes:
        server_kills: how often servers were killed, and have come back.
    """

    not_saved = frozenset(
        {
            "_services",
            "_parts",
            "_pull",
            "_began",
            "_co_located",
            "_numbers",
            "_server",
            "_slice",
            "fault",
            "record",
            "_deals",
            "_uses_again",
            "_overlaps",
            "server_kills",
        }
    )

    def __init__(
        self,
        services: Sequence[ParameterService],
        computing: Computations,
        parts: Callable[[int], PushedParts],
        *,
        asks: bool,
        settings: Settings,
        fault: Callable[[FaultChange], None],
        record: Callable[[int, Sequence[Entry]], None],
    ) -> None:
        """Connect all workers to their services, and have them ask if that is the protocol.

        Args:
            services: the servers' and then the aggregators'.
            parts: returns how what an aggregator pushes is cut and encoded, by its number as a worker.
            fault: called with the record of each fault's beginning and end.
            record: called with what a service has returned, and its index.
        """
        self._services = list(services)
        self._compute = computing
        self._parts = parts
        self.fault = fault
        self.record = record
        self.server_kills = 0
        self._lost: set[int] = set()
        self._connected: set[int] = set()
        self._pull = (HEADER.size,) * asks
        self._co_located = settings.network.co_located
        self._numbers = numbers = conversations(settings)
        workers = range(settings.evaluator)
        every = [one for worker in workers for one in numbers.of_worker(worker)]
        # By conversation: its server, and the slice that this sends. An aggregator sends all there is:
        # what an only server sends as well, or versions of its own.
        self._server = [numbers.server(one) for one in every]
        self._slice = [server if settings.servers > 1 else 0 for server in self._server]
        self._wire = [ModelledConnection() for _ in every]
        # True if a worker may compute more than once at the parameters that it was sent.
        self._overlaps = computation.overlaps(settings)
        self._uses_again = [self._overlaps or len(numbers.of_worker(one)) > 1 for one in workers]
        self._deals = settings.spec.partition.kind == "stream"
        # By conversation: the numbers of the mini-batches that the worker was dealt, by version.
        self._dealt: list[dict[int, int]] = [{} for _ in every]
        # By conversation: the parameters that were sent, as long as they may be needed; how many of
        # them have arrived; and how often any were sent that are the worker's own.
        self._there: list[deque[tuple[Part, int]]] = [deque() for _ in every]
        self._came = [0] * len(every)
        self._own = [0] * len(every)
        self._outbox: list[deque[Begun | Arrived | int]] = [deque() for _ in every]
        self._computing: list[Begun | None] = [None for _ in workers]
        self._computed: list[Arrived | None] = [None for _ in workers]
        self._began = time.monotonic()
        for worker in workers:
            sizes = self._greet(worker)
            for number in numbers.of_worker(worker):
                service = self._services[self._server[number]]
                service.join(worker)
                for size in sizes:
                    service.count(worker, size)
                if asks:
                    service.asked(worker)

    def _greet(self, worker: int) -> Sequence[int]:
        """Connect a worker to its servers; return the bytes of the messages that it sends each."""
        self._connected.add(worker)
        sizes = (HEADER.size + SECRET_SIZE, *self._pull)
        for number in self._numbers.of_worker(worker):
            self._wire[number].greeted(sizes, answer=HEADER.size)
        return sizes

    def _is_local(self, conversation: int) -> bool:
        """Return True if a conversation is within one machine, and crosses no link."""
        worker = self._numbers.worker(conversation)
        return worker == self._server[conversation] < self._co_located

    @property
    def over_links(self) -> dict[tuple[int, int], tuple[int, int]]:
        """The modelled wire bytes that each worker has sent a server, and received from it.

        By the worker's number and the server's index; conversations within a machine are left out.
        """
        return {
            (self._numbers.worker(number), self._server[number]): (
                connection.sent[True],
                connection.sent[False],
            )
            for number, connection in enumerate(self._wire)
            if not self._is_local(number)
        }

    def wire_bytes(self, server: int) -> int:
        """Return the modelled wire bytes that entered a server or, from below, an aggregator.

        Those from a worker on its own machine are left out.
        """
        return sum(
            connection.sent[True]
            for number, connection in enumerate(self._wire)
            if self._server[number] == server and not self._is_local(number)
        )

    def end(self) -> None:
        self._compute.close()

    def close(self) -> None:
        for worker in self._connected:
            for number in self._numbers.of_worker(worker):
                self._wire[number].ended(HEADER.size, up=False)
                self._wire[number].closed()
        self._connected.clear()

    def resume_after(self, host_seconds: float) -> None:
        """Set the host's clock to ``host_seconds`` since the simulation began."""
        self._began = time.monotonic() - host_seconds

    # -- the clock's stage

    def answer(self, conversation: int) -> int:
        worker, compute = self._numbers.worker(conversation), self._compute
        service = self._services[self._server[conversation]]
        answer = service.answer(worker)
        vector, version = answer.vector, answer.version
        is_own = vector is not service.half.parameters
        needed = worker not in self._lost
        if needed and self._deals:
            self._dealt[conversation][version] = answer.dealt
        if needed and (is_own or not compute.at_once):
            # A worker that is welcomed back is sent a version again, which may have changed for it; one
            # that overlaps goes on at what it has.
            self._own[conversation] += is_own and not self._overlaps
            key = (version, worker, self._own[conversation]) if is_own else version
            part = self._slice[conversation], key
            compute.versions.hold(part, vector)
            self._there[conversation].append((part, version))
        size = HEADER.size + sum(map(len, answer.body))
        self._wire[conversation].passed(size, up=False)
        return size

    def arrived(self, conversation: int, version: int) -> None:
        """Release what is older than parameters that have arrived, where a worker needs it no more."""
        if self._deals:
            dealt = self._dealt[conversation].items()
            self._dealt[conversation] = {one: batch for one, batch in dealt if one >= version}
        sent, came = self._there[conversation], self._came[conversation]
        self._came[conversation] += came < len(sent) and sent[came][1] == version
        if len(self._numbers.of_worker(self._numbers.worker(conversation))) == 1:
            self._release_older(conversation, version)

    def _release_older(self, conversation: int, version: int) -> None:
        """Release what is older than a version and, where it came again, all but what came last."""
        sent = self._there[conversation]
        while sent and (sent[0][1] < version or self._came_again(conversation, version)):
            self._compute.versions.release(self._take(conversation))

    def _came_again(self, conversation: int, version: int) -> bool:
        """Return True if the first two have arrived, and are of a version that may be used again."""
        came = [sent for _, sent in itertools.islice(self._there[conversation], 2)]
        again = self._uses_again[self._numbers.worker(conversation)]
        return again and self._came[conversation] > 1 and came == [version, version]

    def _take(self, conversation: int) -> Part:
        """Remove the first of the parameters that were sent."""
        self._came[conversation] = max(0, self._came[conversation] - 1)
        return self._there[conversation].popleft()[0]

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        """Start the worker's computation; what it was computing is dropped."""
        before = self._computing[worker]
        if before is not None:
            self._compute.drop(before)
        numbers = self._numbers.of_worker(worker)
        drawn = self._compute.draw(
            worker, self._dealt[numbers[0]][versions[0]] if self._deals else 0
        )
        if self._compute.at_once and not self._there[numbers[0]]:
            assert versions[0] == self._services[0].half.version
            self._computed[worker] = self._compute.message_at_once(worker, versions, drawn)
            return
        # At its own copy of the parameters it needs no part of theirs.
        parts = () if drawn.goes_on else tuple(map(self._use, numbers, versions))
        self._computing[worker] = self._compute.begin(worker, Begun(parts, versions, drawn))

    def _use(self, conversation: int, version: int) -> Part:
        """Return the part of a version, held for a computation.

        A worker may have to compute at it again, if it has several servers or a send queue.
        """
        self._release_older(conversation, version)
        there = self._there[conversation]
        if not there:
            # The checkpoint is of a run on one processor: it computed at the server's own parameters.
            half = self._services[self._server[conversation]].half
            assert half.version == version
            own: Part = self._slice[conversation], version
            self._compute.versions.hold(own, half.parameters)
            return own
        part, sent = there[0]
        assert sent == version
        if not self._uses_again[self._numbers.worker(conversation)]:
            self._take(conversation)
        else:
            self._compute.versions.hold_again(part)
        return part

    def finish(self, worker: int, reports: Collection[int]) -> None:
        if self._computed[worker] is not None:
            return
        numbers = self._numbers.of_worker(worker)
        begun = self._computing[worker]
        assert begun is not None
        self._computing[worker] = None
        for place, number in enumerate(numbers):
            self._outbox[number].append(begun.versions[place] if place in reports else begun)
        if len(reports) == len(numbers):
            self._compute.drop(begun)

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        worker = self._numbers.worker(conversation)
        arrived = self._computed[worker]
        if arrived is not None:
            self._computed[worker] = None
        else:
            sent = self._outbox[conversation].popleft()
            if isinstance(sent, Begun):
                place = self._numbers.place(conversation)
                arrived = self._compute.message(worker, place, sent, keep=keep)
            elif isinstance(sent, Arrived):
                arrived = sent
            else:
                arrived = Arrived(Pushed(sent, None, 0, math.nan), (HEADER.size,))
        self._wire[conversation].passed(arrived.size, up=True)
        return arrived

    # -- aggregators, by their numbers as workers

    def _aggregator(self, worker: int) -> AggregatorService:
        index = self._numbers.below(worker)
        assert index is not None
        service = self._services[index]
        assert isinstance(service, AggregatorService)
        return service

    def adopt(self, worker: int, versions: Sequence[int], time: float) -> None:
        sent = self._compute.versions
        parts = list(map(self._use, self._numbers.of_worker(worker), versions))
        self._aggregator(worker).adopt(sent.whole(parts), versions, time)
        for part in parts:
            sent.release(part)

    def push(self, worker: int, combined: Combined | None) -> None:
        """Take the parts of what an aggregator has combined; with None, reports."""
        half, numbers = self._aggregator(worker).half, self._numbers.of_worker(worker)
        assert isinstance(half, AggregatorHalf)
        if combined is None:
            for number, base in zip(numbers, half.bases, strict=True):
                report = Arrived(Pushed(base, None, 0, math.nan), (HEADER.size,))
                self._outbox[number].append(report)
            return
        update, parts = checked(combined.update, len(half.parameters), half), self._parts(worker)
        measured = parts.measure(update)
        if parts.lossy:
            half.lost(update, parts.received([part for _, part in measured]))
        for number, base, (size, part) in zip(numbers, combined.bases, measured, strict=True):
            push = Pushed(base, part.copy(), size, as_loss(combined.loss), combined.count)
            message = Arrived(push, (HEADER.size + size, HEADER.size))
            self._outbox[number].append(message)

    def ask(self, conversation: int) -> int:
        self._wire[conversation].passed(HEADER.size, up=True)
        return HEADER.size

    # -- what goes wrong

    def server_killed(self, server: int, number: int, begin: FaultChange, end: FaultChange) -> None:
        self.fault(begin)
        if number > self.server_kills:
            raise ServerKilledError(server, number, begin)
        self.fault(end)

    def lose(self, worker: int) -> None:
        """Drop what a worker was computing or had to send, and what it is sent from now on."""
        self._lost.add(worker)
        begun = self._computing[worker]
        if begun is not None:
            self._compute.drop(begun)
        for number in self._numbers.of_worker(worker):
            for one in self._outbox[number]:
                if isinstance(one, Begun):
                    self._compute.drop(one)
            for part, _ in self._there[number]:
                self._compute.versions.release(part)
            self._outbox[number].clear()
            self._there[number].clear()
            self._came[number] = 0
        self._computing[worker] = self._computed[worker] = None

    def killed(self, worker: int) -> None:
        self.lose(worker)
        self._connected.remove(worker)
        for number in self._numbers.of_worker(worker):
            self._wire[number].closed()

    def returned(self, worker: int, incarnation: int) -> Sequence[int]:
        self._lost.remove(worker)
        self._compute.begin_anew(worker, incarnation)
        return self._greet(worker)

    def host_time(self) -> float:
        return time.monotonic() - self._began

    def refuse(self, conversation: int, error: UnexpectedMessageError) -> None:
        """Raise an error: only a bug makes a simulated worker send an invalid message."""
        raise AssertionError(f"conversation {conversation}: {error}")

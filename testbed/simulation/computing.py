"""The gradients of simulated workers: computed at once, when needed, many together, or in a pool."""

from collections.abc import Callable, Sequence

import numpy as np

from testbed.checkpoints.stateful import State, Stateful
from testbed.clock.stage import Arrived
from testbed.faults.rules import FaultRule
from testbed.learning.data.datasets import Dataset
from testbed.learning.learner import Learner
from testbed.simulation.batching import Batching, Begun
from testbed.simulation.pool_process import SharedMemory, Work
from testbed.simulation.process_pool import ProcessPool, processors
from testbed.simulation.sent_versions import Part, SentVersions
from testbed.training import computation
from testbed.training.computation import Computation, Drawn
from testbed.training.parameter_service import Pushed, as_loss
from testbed.training.settings import Settings
from testbed.training.slices import Slice
from testbed.updates import DenseUpdate, FloatVector, SparseUpdate, Update
from testbed.wire.frames import HEADER

ENOUGH_UPDATES = 10
"""Updates per worker from which gradients are computed immediately: up to one per worker is wasted."""


class Computations(Stateful):
    """The computations of all workers of a run.

    Where a worker of one server is certain to send what it computes, and has its parameters as soon as
    they are sent, its gradient is computed immediately, at the server's own parameters, without a copy.
    Otherwise it is computed when its first message is taken in, and not at all if none ever is; or, on
    several processors, ahead of that in another process. The result is the same: a gradient depends
    only on the versions and the mini-batch that was drawn.

    Attributes:
        at_once: True if gradients are computed immediately.
        versions: the parameters that were sent and may be needed.
    """

    not_saved = frozenset(
        {
            "at_once",
            "_computations",
            "_of_server",
            "_learner",
            "_loaded",
            "_pull",
            "_local",
            "_gradients",
            "_new_incarnation",
            "_pool",
        }
    )

    def __init__(
        self,
        computations: Sequence[Computation],
        cut: Sequence[Slice],
        learners: tuple[Learner, Learner],
        *,
        asks: bool,
        settings: Settings,
        dataset: Dataset,
        new_incarnation: Callable[[int, int], Computation],
    ) -> None:
        """Set up the workers' computations, none of them under way.

        Args:
            cut: the slices of the servers, and of aggregators whose versions are their own.
            learners: one whose parameters are those of the only server, and another one.
        """
        self._computations = list(computations)
        self._new_incarnation = new_incarnation
        self._of_server, self._learner = of_server, learner = learners
        self._loaded: Sequence[Part] = ()
        self._pull = (HEADER.size,) * asks
        # Local steps change the parameters that they are computed at.
        self._local = local = computation.trains_locally(settings)
        worthwhile = settings.training.updates >= ENOUGH_UPDATES * len(computations)
        batched = settings.batched
        number = processors(settings, learner, of_server.parameters, dataset)
        later = local or batched or number > 1 or computation.overlaps(settings)
        self.at_once = asks and _instant(settings) and worthwhile and not later
        self._pool: ProcessPool | None = None
        if number > 1:
            memory = SharedMemory()
            self.versions = SentVersions(cut, memory.like)
            work = Work(self._computations, cut, learner, local, new_incarnation, memory)
            self._pool = ProcessPool(number, work, self.versions)
        else:
            self.versions = SentVersions(cut)
        self._batching: Batching | None = None
        if batched and not local:
            self._batching = Batching(settings, dataset, self.versions)
        self._gradients: list[FloatVector | None] = [None] * len(computations)

    def state(self) -> State:
        """Return everything but the data, and what can be made again."""
        kept = self._pool.kept() if self._pool else {}
        computations = [
            {**one.state(), **kept.get(worker, {})} for worker, one in enumerate(self._computations)
        ]
        return super().state() | {"computations": computations}

    def restore(self, state: State) -> None:
        """Go on from a state; parameters are loaded anew."""
        own = dict(state)
        for one, saved in zip(self._computations, own.pop("computations"), strict=True):
            one.restore(saved)
        super().restore(own)
        self._loaded = ()

    def begin_anew(self, worker: int, incarnation: int) -> None:
        """Restart the computations of a worker that was killed, from the beginning."""
        self._computations[worker] = self._new_incarnation(worker, incarnation)
        if self._pool is not None:
            self._pool.begin_anew(worker, incarnation)

    def draw(self, worker: int, dealt: int) -> Drawn:
        """Draw the mini-batches of a worker's next computation.

        Args:
            dealt: the number of the mini-batch that the server has dealt it, where that is how.
        """
        return self._computations[worker].draw(dealt)

    def message_at_once(self, worker: int, versions: Sequence[int], drawn: Drawn) -> Arrived:
        """Compute at the only server's own parameters, and return the message to it."""
        own = self._computations[worker]
        gradient, loss = own.gradient(self._of_server, drawn, versions[0])
        measured = own.measure(gradient) if drawn.leg.pushes else []
        (message,) = self._messages(worker, versions, drawn, measured, loss, keep=True)
        return message

    def begin(self, worker: int, begun: Begun) -> Begun:
        """Start a computation at parameters that are held for it; return it."""
        if self._batching is not None:
            self._batching.begin(begun)
        if self._pool is not None:
            self._pool.begin(worker, begun)
        return begun

    def drop(self, begun: Begun) -> None:
        """Release a computation that is no longer needed, and its parameters."""
        if self._batching is not None:
            self._batching.drop(begun)
        if self._pool is not None:
            self._pool.drop(begun)
        begun.release(self.versions)

    def message(self, worker: int, place: int, begun: Begun, *, keep: bool) -> Arrived:
        """Return a worker's message to one of its servers, and compute if it is the first one.

        Args:
            place: of the server, among the worker's.
            keep: True if others may be computed before the message is used.
        """
        if begun.messages is None:
            measured, loss = self._measured(worker, begun)
            begun.messages = self._messages(
                *(worker, begun.versions, begun.drawn, measured, loss),
                keep=keep or len(begun.versions) > 1,
            )
        return begun.messages[place]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _measured(self, worker: int, begun: Begun) -> tuple[Sequence[tuple[int, Update]], float]:
        if self._pool is not None:
            return self._pool.result(worker, begun)
        gradient, loss = self._gradient(worker, begun)
        pushes = begun.drawn.leg.pushes
        return self._computations[worker].measure(gradient) if pushes else [], loss

    def _gradient(self, worker: int, begun: Begun) -> tuple[FloatVector, float]:
        if self._batching is not None:
            return self._batching.result(begun)
        if begun.parts and (self._local or self._loaded != begun.parts):
            self.versions.load(begun.parts, self._learner.parameters)
            self._loaded = begun.parts
        begun.release(self.versions)
        return self._computations[worker].gradient(self._learner, begun.drawn, min(begun.versions))

    def _messages(
        self,
        worker: int,
        versions: Sequence[int],
        drawn: Drawn,
        measured: Sequence[tuple[int, Update]],
        loss: float,
        *,
        keep: bool,
    ) -> list[Arrived]:
        pull = self._pull if drawn.leg.asks else ()
        if not drawn.leg.pushes:
            return [Arrived(None, pull)] * len(versions)
        found = []
        for version, (size, received) in zip(versions, measured, strict=True):
            update = self._kept(worker, received) if keep else received
            push = Pushed(version, update, size, as_loss(loss))
            found.append(Arrived(push, (HEADER.size + size, *pull)))
        return found

    def _kept(self, worker: int, update: Update) -> Update:
        """Return a copy; one of a dense update may lie in memory that the worker keeps for it."""
        if isinstance(update, SparseUpdate) or not self.at_once:
            return update.copy()
        memory = self._gradients[worker]
        if memory is None:
            memory = self._gradients[worker] = np.empty_like(update.values)
        np.copyto(memory, update.values)
        return DenseUpdate(memory)


def _instant(settings: Settings) -> bool:
    """Return True if what the only server sends is used at once, whatever happens."""
    at_once = all(device.is_sent_at_once for device in settings.kinds_of_devices)
    alone = settings.serving == 1 and not (settings.network.route_of or settings.spec.costs)
    return alone and at_once and not any(map(_delays, settings.faults.rules))


def _delays(rule: FaultRule) -> bool:
    """Return True if a rule makes parameters arrive later than they are sent."""
    return any(
        fault.downlink or (fault.duration and fault.kind not in ("kill", "slow"))
        for _, fault in rule.faults()
    )

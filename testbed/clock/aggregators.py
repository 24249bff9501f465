"""The aggregators of a run, under the virtual clock: workers of the server, and servers of workers."""

from collections.abc import Sequence
from typing import Protocol

from testbed.checkpoints.stateful import Stateful
from testbed.clock.events import EXPIRED
from testbed.clock.star import StarClock
from testbed.clock.timed_workers import TimedWorker
from testbed.training.aggregator_service import AggregatorService


class AggregatorStage(Protocol):
    """The part of a stage that only aggregators need."""

    def adopt(self, worker: int, version: int, time: float) -> None:
        """Make an aggregator's service take over parameters that have arrived.

        Args:
            worker: the aggregator's number as a worker.
            time: now, in virtual seconds since training began.
        """


class TimedAggregators(Stateful):
    """All aggregators of a run, as its clock has to know them: a ``clock.Aggregators``."""

    not_saved = frozenset({"_clock", "_services", "_stage"})

    def __init__(
        self, clock: StarClock, services: Sequence[AggregatorService], stage: AggregatorStage
    ) -> None:
        """Begin with aggregators that have no parameters yet.

        Args:
            services: the aggregators', in their order.
        """
        self._clock = clock
        self._services = services
        self._stage = stage

    def _service(self, worker: int) -> AggregatorService:
        index = self._clock.conversations.below(worker)
        assert index is not None
        return self._services[index - 1]

    def adopt(self, worker: int, state: TimedWorker, version: int) -> None:
        """Let an aggregator serve the parameters that have arrived, and begin to combine."""
        state.begun += 1
        state.finished = False
        self._stage.adopt(worker, version, self._clock.now)
        deadline = self._service(worker).half.deadline
        if deadline is not None:
            number = self._clock.conversations.of_worker(worker)[0]
            self._clock.events.add(deadline, EXPIRED, number, state.begun)
        self._clock.send_due()

    def expired(self, worker: int, state: TimedWorker, combination: float) -> None:
        """Note that the time of a combination is over, unless it has closed already."""
        if combination == state.begun and not state.finished:
            self._service(worker).half.expire()
            self._clock.send_due()

    def push_due(self) -> None:
        """Let the aggregators whose combinations have closed push them."""
        for index, service in enumerate(self._services, 1):
            if service.half.is_due:
                worker = self._clock.conversations.above(index)
                assert worker is not None
                self._clock.finish(worker, self._clock.workers[worker])

    def stop(self) -> None:
        """Note that the server has made the run's updates: no aggregator serves any more."""
        for service in self._services:
            service.stop()

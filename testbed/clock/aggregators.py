"""The aggregators of a run, under the virtual clock: workers of the server, and servers of workers.

An aggregator without devices *rests*: its combination closes with nothing in it, it sends the server a
report in place of a push, and does not ask for parameters. As soon as a device has joined, or one that
was suspected has sent something, it asks. That message takes no time, like those of a worker that comes
back.
"""

from collections.abc import Sequence
from typing import Protocol

from testbed.checkpoints.stateful import Stateful
from testbed.clock.star import StarClock
from testbed.training.aggregator_service import AggregatorService


class AggregatorStage(Protocol):
    """The part of a stage that only aggregators need."""

    def adopt(self, worker: int, version: int, time: float) -> None:
        """Make an aggregator's service take over parameters that have arrived.

        Args:
            worker: the aggregator's number as a worker.
            time: now, in virtual seconds since training began.
        """

    def ask(self, worker: int) -> int:
        """Let an aggregator that rested ask its server for parameters; return the message's bytes.

        Args:
            worker: the aggregator's number as a worker.
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
        self._resting: set[int] = set()

    def adopt(self, worker: int, version: int) -> None:
        """Let an aggregator serve the parameters that have arrived, and begin to combine."""
        self._stage.adopt(worker, version, self._clock.now)
        self._clock.send_due()

    def push_due(self) -> None:
        """Let aggregators push combinations that have closed, and ask again if a device has come."""
        for index, service in enumerate(self._services, 1):
            worker = self._clock.conversations.above(index)
            assert worker is not None
            if service.half.is_due:
                self._clock.finish(worker, self._clock.workers[worker])
            elif worker in self._resting and not (service.is_deserted or service.finished):
                self._resting.discard(worker)
                self._clock.asks(worker, self._stage.ask(worker))

    def rests(self, worker: int) -> None:
        """Note that the server has an aggregator's report that it has no devices."""
        self._resting.add(worker)

    def stop(self) -> None:
        """Note that the server has made the run's updates: no aggregator serves any more."""
        for service in self._services:
            service.stop()

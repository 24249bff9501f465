"""The decisions of an aggregator: a parameter service whose versions come from what is above it."""

import math
from collections.abc import Sequence
from typing import ClassVar

from testbed.algorithms.aggregator_half import AggregatorHalf, CombiningHalf
from testbed.algorithms.server_half import ServerHalf
from testbed.training.parameter_service import (
    Apply,
    ParameterService,
    Pushed,
    apply_update,
)
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.training.worker_states import WorkerState
from testbed.updates import FloatVector, Layout


class AggregatorService(ParameterService):
    """Decides for one aggregator what its workers are sent, and when.

    Its updates are none of the run's: of its workers, only suspicions are recorded.

    Attributes:
        calls: how many roles it calls itself: an aggregator, or all servers.
    """

    not_saved = frozenset({"calls", "_calls_aggregator"})
    makes_updates: ClassVar[bool] = False
    half: CombiningHalf

    def __init__(
        self,
        half: CombiningHalf,
        layout: Layout,
        settings: Settings,
        apply: Apply = apply_update,
        *,
        index: int,
    ) -> None:
        """Make the service of an aggregator, without workers and without parameters.

        Args:
            index: the aggregator's, as a server; from 1.
        """
        super().__init__(half, layout, settings, apply, index=index)
        self._is_stopped = False
        # The aggregators among its callers that have no devices.
        self._resting: set[int] = set()
        number = settings.as_worker(index)
        self.calls = len(settings.called(number))
        self._calls_aggregator = settings.calls_aggregator(number)

    @property
    def finished(self) -> bool:
        """True if all servers have made the run's updates."""
        return self._is_stopped

    @property
    def stalled(self) -> bool:
        """False: workers that all wait do so for the server above."""
        return False

    @property
    def is_deserted(self) -> bool:
        """True if no device is there but those that are suspected."""
        suspected = self._states.within(WorkerState.SUSPECTED)
        return len(self._states) == len(suspected) + len(self._resting)

    def leave(self, worker: int, *, over: bool = False) -> list[Entry]:
        self._resting.discard(worker)
        return super().leave(worker, over=over)

    def asked(self, worker: int, time: float = 0.0) -> list[Entry]:
        self._resting.discard(worker)
        return super().asked(worker, time)

    def pushed(self, worker: int, push: Pushed, time: float, host_time: float) -> list[Entry]:
        found = super().pushed(worker, push, time, host_time)
        if push.update is None:
            self._resting.add(worker)
        return found

    def stop(self) -> None:
        """Make the aggregator's updates complete: all servers have made the run's."""
        self._is_stopped = True

    def lose_server(self) -> None:
        """Forget what devices were sent: the only server was killed, and has an earlier version.

        What devices have is of no version that they could be sent the changes of.
        """
        assert isinstance(self.half, AggregatorHalf)
        self.half.lose_server()
        self._sent = dict.fromkeys(self._sent)

    def adopt(self, parameters: FloatVector, bases: Sequence[int], time: float = math.nan) -> None:
        """Take over parameters from above; workers that waited for them may be sent them.

        An earlier version than before comes from an aggregator that has lost its server.

        Args:
            parameters: float32, (|Θ|,), which are copied.
            bases: the version of each part of them, by the roles above.
            time: now, in seconds since training began by the run's clock.

        Raises:
            ValueError: the version is older than the one before.
        """
        if self._calls_aggregator and bases[0] < self.half.version:
            self.lose_server()
        self.half.adopt(parameters, bases, time=time)
        self._states.release()


def service_of(
    half: ServerHalf,
    layout: Layout,
    settings: Settings,
    apply: Apply = apply_update,
    *,
    index: int,
) -> ParameterService:
    """Make the service of a server, or of an aggregator, around its half."""
    if isinstance(half, CombiningHalf):
        return AggregatorService(half, layout, settings, apply, index=index)
    return ParameterService(half, layout, settings, apply, index=index)

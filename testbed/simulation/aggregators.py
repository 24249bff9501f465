"""The simulated aggregators of a run: what they take from the server above, and push to it."""

import math
from collections.abc import Sequence

from testbed.algorithms.aggregator_half import AggregatorHalf, Combined
from testbed.clock.conversations import Conversations
from testbed.clock.stage import Arrived
from testbed.training.aggregator_service import AggregatorService
from testbed.training.parameter_service import Pushed, as_loss
from testbed.updates import FloatVector, checked
from testbed.wire.encodings import UpdateCodec
from testbed.wire.frames import HEADER


class SimulatedAggregators:
    """All aggregators of a run, by their numbers as workers; it may have none."""

    def __init__(
        self,
        services: Sequence[AggregatorService],
        conversations: Conversations,
        codec: UpdateCodec,
    ) -> None:
        """Set up the aggregators, with nothing combined.

        Args:
            services: in the aggregators' order.
            codec: encodes what they push.
        """
        self._services = list(services)
        self._numbers = conversations
        self._codec = codec

    def _service(self, worker: int) -> AggregatorService:
        index = self._numbers.below(worker)
        assert index is not None
        return self._services[index - 1]

    def adopt(self, worker: int, parameters: FloatVector, version: int, time: float) -> None:
        """Make an aggregator's service take over parameters that have arrived."""
        self._service(worker).adopt(parameters, version, time)

    def message(self, worker: int, combined: Combined | None) -> Arrived:
        """Return what an aggregator sends when its combination has closed; with None, a report."""
        half = self._service(worker).half
        assert isinstance(half, AggregatorHalf)
        if combined is None:
            return Arrived(Pushed(half.version, None, 0, math.nan), (HEADER.size,))
        update = checked(combined.update, len(half.parameters), half)
        size, received = self._codec.measure(update), self._codec.rounded(update)
        if self._codec.lossy:
            half.lost(update, received)
        push = Pushed(
            combined.base_version, received.copy(), size, as_loss(combined.loss), combined.count
        )
        return Arrived(push, (HEADER.size + size, HEADER.size))

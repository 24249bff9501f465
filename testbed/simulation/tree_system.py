"""A server, its aggregators and their workers."""

from collections.abc import Sequence
from typing import Any

from testbed.clock.aggregators import TimedAggregators
from testbed.clock.conversations import conversations
from testbed.clock.devices import devices
from testbed.clock.star import StarClock
from testbed.device_names import SERVER_NAME, aggregator_name, worker_name
from testbed.encoding_choice import EncodingChoice
from testbed.learning.data import datasets
from testbed.learning.learner import Learner
from testbed.simulation.system import System, Witness, batches_of_all
from testbed.simulation.tree import SimulatedTree
from testbed.telemetry.records import UpdateRow
from testbed.training import computation
from testbed.training.aggregator_service import AggregatorService
from testbed.training.computation import Computation
from testbed.training.objective import objective
from testbed.training.parameter_service import ParameterService
from testbed.training.settings import Settings
from testbed.training.times import Times
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.updates import FloatVector
from testbed.wire.encodings import Codec


class TreeSystem(System):
    """A server, its aggregators and their workers."""

    clock: StarClock

    def __init__(
        self,
        settings: Settings,
        dataset: datasets.Dataset,
        learner: Learner,
        initial: FloatVector,
        observer: Witness,
    ) -> None:
        layout, numbers = learner.layout, conversations(settings)
        self._workers = settings.workers
        self._half = computation.server_half(settings, layout, initial.copy())
        self._service = ParameterService(self._half, layout, settings, observer)
        of = list(settings.network.aggregator_of)
        self._combining = [
            computation.aggregator_half(settings, layout, of.count(index))
            for index in range(settings.aggregators)
        ]
        self._aggregators = [
            AggregatorService(half, layout, settings, _OfAggregator(observer), index=1 + index)
            for index, half in enumerate(self._combining)
        ]
        choice = EncodingChoice.model_validate(settings.training.encoding)
        codec, goal = Codec(choice, layout.sizes), objective(settings)
        computations = [
            Computation(computation.worker_half(settings, layout, number), own, codec, goal)
            for number, own in enumerate(batches_of_all(settings, dataset))
        ]
        self._tree = SimulatedTree(
            self._service,
            self._aggregators,
            computations,
            learner,
            codec,
            conversations=numbers,
            on_fault=observer.fault,
        )
        timed = devices(
            settings,
            range(settings.workers + settings.aggregators),
            WORKER_PROTOCOLS[self._half.protocol],
            Times.of(settings).busy(computations[0].half.local_steps),
        )
        self.clock = StarClock([self._service, *self._aggregators], self._tree, timed)
        self.clock.aggregators = TimedAggregators(self.clock, self._aggregators, self._tree)

    @property
    def version(self) -> int:
        return self._half.version

    @property
    def parameters(self) -> FloatVector:
        """The server's parameters."""
        return self._half.parameters

    def ledger(self) -> dict[str, int]:
        """Return the bytes that entered the server; what entered aggregators is not among them."""
        return self._ledger(0)

    def _ledger(self, server: int) -> dict[str, int]:
        service = self._aggregators[server - 1] if server else self._service
        return {
            "payload_bytes": service.payload_bytes,
            "message_bytes": service.message_bytes,
            "wire_bytes": self._tree.wire_bytes(server),
        }

    def over_links(self) -> dict[tuple[str, str], int]:
        numbers, found = self.clock.conversations, {}
        for number, (sent, received) in enumerate(self._tree.over_links):
            server = numbers.server(number)
            one = aggregator_name(number - self._workers)
            if number < self._workers:
                one = worker_name(number)
            other = aggregator_name(server - 1) if server else SERVER_NAME
            found[one, other] = sent
            found[other, one] = received
        return found

    def resume_after(self, host_seconds: float, server_kills: int = 0) -> None:
        self._tree.resume_after(host_seconds)

    def drain(self) -> None:
        self.clock.drain()
        self._tree.close()

    def own_summary(self) -> dict[str, Any]:
        """Return what each aggregator received from its workers, and what of it came too late."""
        return {
            "aggregators": {
                aggregator_name(index): {**self._ledger(1 + index), "late": half.late}
                for index, half in enumerate(self._combining)
            }
        }


class _OfAggregator:
    """The observer of an aggregator's service: its updates are none of the server's.

    A worker that is suspected or welcomed by its aggregator is reported like one of the server.
    """

    def __init__(self, observer: Witness) -> None:
        self._observer = observer

    def row(self, row: UpdateRow, version: int) -> None:
        pass

    def evaluation_due(self) -> None:
        pass

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        pass

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        self._observer.suspected(worker, silent, time, version)

    def welcomed(self, worker: int, time: float, version: int) -> None:
        self._observer.welcomed(worker, time, version)

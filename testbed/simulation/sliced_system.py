"""Several servers and their workers, each server with a slice of the parameters."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from testbed.algorithms.server_half import ServerHalf
from testbed.clock.devices import devices
from testbed.clock.faults import star_clock
from testbed.clock.star import StarClock
from testbed.device_names import server_names, worker_name
from testbed.encoding_choice import EncodingChoice
from testbed.faults.schedule import Schedule
from testbed.learning.data import datasets
from testbed.learning.data.batches import Batches
from testbed.learning.learner import Learner
from testbed.simulation.several_servers import WorkersOfSeveralServers
from testbed.simulation.system import Evaluated, System, Witness, batches_of_all
from testbed.telemetry.records import UpdateRow
from testbed.training import computation
from testbed.training.objective import objective
from testbed.training.parameter_service import ParameterService
from testbed.training.settings import Settings
from testbed.training.sliced_computation import SlicedComputation
from testbed.training.slices import slices
from testbed.training.times import Times
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.updates import FloatVector


class SlicedSystem(System):
    """Several servers and their workers."""

    clock: StarClock

    def __init__(
        self,
        settings: Settings,
        dataset: datasets.Dataset,
        learner: Learner,
        initial: FloatVector,
        observer: Witness,
    ) -> None:
        layout, encoding = learner.layout, settings.training.encoding
        self._observer = observer
        self._co_located = settings.network.co_located
        self._cut = slices(layout, settings.servers)
        # All servers' slices, next to each other.
        self._parameters = initial.copy()
        self._halves: list[ServerHalf] = [
            computation.server_half(settings, one.layout, self._parameters[one.start : one.stop])
            for one in self._cut
        ]
        self._services: list[ParameterService] = [
            ParameterService(half, one.layout, settings, _OneServer(self, index), index=index)
            for index, (half, one) in enumerate(zip(self._halves, self._cut, strict=True))
        ]
        self._waiting: dict[int, list[Evaluated | None]] = {}
        self._evaluated: Evaluated | None = None
        self._ledgers: list[dict[str, int]] = []
        choice, goal = EncodingChoice.model_validate(encoding), objective(settings)
        batches = list(batches_of_all(settings, dataset))

        def compute_on(number: int, own: Batches) -> SlicedComputation:
            half = computation.worker_half(settings, layout, number)
            return SlicedComputation(half, own, choice, layout, self._cut, goal)

        def new_incarnation(worker: int, incarnation: int) -> SlicedComputation:
            """Make the computation of a worker that was killed: it has lost all but its images."""
            old = batches[worker]
            own = computation.batches(
                settings, dataset, old.shard, worker, memory=old, incarnation=incarnation
            )
            return compute_on(worker, own)

        computations = [compute_on(number, own) for number, own in enumerate(batches)]
        protocol = WORKER_PROTOCOLS[self._halves[0].protocol]
        self._workers = WorkersOfSeveralServers(
            self._services,
            self._cut,
            computations,
            learner,
            asks=protocol.asks,
            co_located=settings.network.co_located,
            new_incarnation=new_incarnation,
            on_fault=observer.fault,
        )
        busy = Times.of(settings).busy(computations[0].half.local_steps)
        timed = devices(settings, range(settings.workers), protocol, busy)
        schedule = Schedule(settings.faults.rules, settings.seed, settings.workers)
        self.clock = star_clock(self._services, self._workers, timed, schedule)

    @property
    def version(self) -> int:
        """The number of updates that all servers have made."""
        return min(half.version for half in self._halves)

    @property
    def parameters(self) -> FloatVector:
        """The parameters of all servers, as they are now."""
        return self._parameters

    def ledger(self) -> dict[str, int]:
        """Return the bytes that entered all servers together."""
        return _sum([self._ledger(index) for index in range(len(self._services))])

    def _ledger(self, index: int) -> dict[str, int]:
        service = self._services[index]
        ledger = {
            "payload_bytes": service.payload_bytes,
            "message_bytes": service.message_bytes,
            "wire_bytes": self._workers.wire_bytes(index),
        }
        if self._co_located:
            ledger["local_payload_bytes"] = service.local_payload_bytes
            ledger["local_message_bytes"] = service.local_message_bytes
        return ledger

    def over_links(self) -> dict[tuple[str, str], int]:
        names, found = server_names(len(self._services)), {}
        for number, (sent, received) in enumerate(self._workers.over_links):
            worker, server = divmod(number, len(names))
            if worker == server < self._co_located:
                continue  # it crosses no link
            found[worker_name(worker), names[server]] = sent
            found[names[server], worker_name(worker)] = received
        return found

    @property
    def evaluated(self) -> Evaluated:
        """The version whose slices all servers have reached; bytes are when each of them did."""
        assert self._evaluated is not None
        return self._evaluated

    def resume_after(self, host_seconds: float, server_kills: int = 0) -> None:
        self._workers.resume_after(host_seconds)

    def drain(self) -> None:
        self.clock.drain()
        self._workers.close()

    def own_summary(self) -> dict[str, Any]:
        """Return what each server had received when it reached the last version that was evaluated."""
        names = server_names(len(self._services))
        return {"servers": dict(zip(names, self._ledgers, strict=True))}

    # -- what one server reports

    def _row(self, row: UpdateRow) -> None:
        self._observer.row(row, self.version)

    def _evaluation_due(self, index: int) -> None:
        """Keep a server's slice, and have the version evaluated when it is the last one."""
        half = self._halves[index]
        waiting = self._waiting.setdefault(half.version, [None] * len(self._halves))
        waiting[index] = Evaluated(half.version, half.parameters.copy(), self._ledger(index))
        there = [one for one in waiting if one is not None]
        if len(there) < len(waiting):
            return
        del self._waiting[half.version]
        parameters = np.concatenate([one.parameters for one in there])
        self._ledgers = [one.ledger for one in there]
        self._evaluated = Evaluated(half.version, parameters, _sum(self._ledgers))
        self._observer.evaluation_due()


class _OneServer:
    """The observer of one server's service."""

    def __init__(self, system: SlicedSystem, index: int) -> None:
        self._system = system
        self._index = index

    def row(self, row: UpdateRow, version: int) -> None:
        self._system._row(row)

    def evaluation_due(self) -> None:
        self._system._evaluation_due(self._index)

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        if self._index == 0:
            self._system._observer.diagnosed(values, version)

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        self._system._observer.suspected(worker, silent, time, version)

    def welcomed(self, worker: int, time: float, version: int) -> None:
        self._system._observer.welcomed(worker, time, version)


def _sum(ledgers: Sequence[dict[str, int]]) -> dict[str, int]:
    return {key: sum(ledger[key] for ledger in ledgers) for key in ledgers[0]}

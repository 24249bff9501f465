"""Servers and their workers, with aggregators between them or without."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from testbed.algorithms.server_half import ServerHalf
from testbed.checkpoints.stateful import Stateful
from testbed.clock.device_use import DeviceUse, of_served
from testbed.clock.star import StarClock
from testbed.clock.timed_workers import Devices
from testbed.clock.worker_faults import star_clock
from testbed.device_names import aggregator_name, server_names, worker_name
from testbed.learning.data import datasets
from testbed.learning.data.batches import Batches
from testbed.learning.learner import Learner
from testbed.run_endings import SummaryContent
from testbed.simulation.computing import Computations
from testbed.simulation.simulated_devices import SimulatedDevices
from testbed.simulation.sliced_evaluations import SlicedEvaluations, sum_of
from testbed.simulation.system import EvaluatedVersion, System, Witness, batches_of_all
from testbed.training import computation
from testbed.training.aggregator_service import service_of
from testbed.training.computation import Computation
from testbed.training.objective import objective
from testbed.training.pushed_parts import PushedParts
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.training.slices import slices, slices_of, whole
from testbed.training.times import Times
from testbed.updates import FloatVector


class ServedSystem(Stateful, System):
    """The servers, aggregators and workers of one run."""

    not_saved = frozenset({"_settings", "_cut", "_witness", "_halves", "_combining"})
    clock: StarClock

    def __init__(
        self,
        settings: Settings,
        dataset: datasets.Dataset,
        learner: Learner,
        initial: FloatVector,
        witness: Witness,
    ) -> None:
        layout, servers = learner.layout, settings.servers
        self._settings = settings
        self._cut = slices_of(settings, layout)
        # One server's parameters are the learner's memory, so computing at them needs no copy.
        np.copyto(learner.parameters, initial)
        self._halves = [
            computation.server_half(
                settings,
                one.layout,
                learner.parameters if servers == 1 else one.take(initial).copy(),
            )
            for one in self._cut
        ]
        self._combining = [
            computation.aggregator_half(settings, layout, index)
            for index in range(servers, settings.serving)
        ]
        self._all_halves: list[ServerHalf] = [*self._halves, *self._combining]
        self._witness = witness
        self._evaluations = SlicedEvaluations(
            self._halves, self._cut, self._ledger, settings.network.co_located
        )
        layouts = [one.layout for one in self._cut] + [layout] * settings.aggregators
        self._services = [
            service_of(half, own, settings, index=index)
            for index, (half, own) in enumerate(zip(self._all_halves, layouts, strict=True))
        ]
        goal = objective(settings)
        # The slices by which it is cut what servers are sent, and what aggregators are.
        cuts = {False: self._cut, True: slices(layout, 1)}
        parts = {one: PushedParts(settings.encoding, cut) for one, cut in cuts.items()}

        def parts_of(worker: int) -> PushedParts:
            return parts[settings.calls_aggregator(worker)]

        batches, legs = list(batches_of_all(settings, dataset)), partial(computation.legs, settings)

        def compute_on(number: int, own: Batches) -> Computation:
            half = computation.worker_half(settings, layout, number)
            return Computation(half, own, parts_of(number), goal, legs(number))

        def new_incarnation(worker: int, incarnation: int) -> Computation:
            """Make the computation of a worker that was killed: it has lost all but its images."""
            old = batches[worker]
            own = computation.batches(
                settings, dataset, old.shard, worker, memory=old, incarnation=incarnation
            )
            return compute_on(worker, own)

        # Of an only server, aggregators send the same versions as it does.
        own_versions = cuts[True] * (settings.aggregators if servers > 1 else 0)
        computations = [compute_on(number, own) for number, own in enumerate(batches)]
        protocol = self._halves[0].protocol
        asks = protocol == "pull"
        self._devices = SimulatedDevices(
            self._services,
            Computations(
                computations,
                [*self._cut, *own_versions],
                (learner, learner.twin()),
                asks=asks,
                settings=settings,
                dataset=dataset,
                new_incarnation=new_incarnation,
            ),
            parts_of,
            asks=asks,
            settings=settings,
            fault=witness.fault,
            record=self._record,
        )
        self._busy = Times.of(settings).busy()
        self.clock = star_clock(
            self._services,
            self._devices,
            Devices.of(settings, range(settings.evaluator), protocol, self._busy),
            settings.schedule(),
        )

    def _record(self, server: int, entries: Sequence[Entry]) -> None:
        """Record what a server's service has returned; of several, as entries of the run."""
        if server < len(self._halves) > 1:
            entries = self._evaluations.of_run(server, entries)
        self._witness.record(entries)

    @property
    def version(self) -> int:
        return min(half.version for half in self._halves)

    @property
    def parameters(self) -> FloatVector:
        found = [half.parameters for half in self._halves]
        return found[0] if len(found) == 1 else whole(found, self._cut)

    @property
    def evaluated(self) -> EvaluatedVersion:
        """The version whose slices all servers have reached; bytes are when each of them did."""
        if len(self._halves) == 1:
            return super().evaluated
        assert self._evaluations.evaluated is not None
        return self._evaluations.evaluated

    def ledger(self) -> dict[str, int]:
        return sum_of([self._ledger(index) for index in range(self._settings.servers)])

    def _ledger(self, index: int) -> dict[str, int]:
        """Return the bytes that entered a server or, from below, an aggregator."""
        service = self._services[index]
        ledger = {
            "payload_bytes": service.payload_bytes,
            "message_bytes": service.message_bytes,
            "wire_bytes": self._devices.wire_bytes(index),
        }
        if self._settings.network.co_located and index < len(self._halves):
            ledger["local_payload_bytes"] = service.local_payload_bytes
            ledger["local_message_bytes"] = service.local_message_bytes
        return ledger

    def over_links(self) -> dict[tuple[str, str], int]:
        workers = [worker_name(number) for number in range(self._settings.workers)]
        aggregators = [aggregator_name(index) for index in range(self._settings.aggregators)]
        calling, serving = workers + aggregators, [*self._server_names, *aggregators]
        found = {}
        for (worker, server), (sent, received) in self._devices.over_links.items():
            found[calling[worker], serving[server]] = sent
            found[serving[server], calling[worker]] = received
        return found

    def device_use(self) -> list[DeviceUse]:
        return of_served(self.clock, self._settings)

    @property
    def _server_names(self) -> Sequence[str]:
        return server_names(len(self._halves))

    def resume_after(self, host_seconds: float, server_kills: int = 0) -> None:
        self._devices.resume_after(host_seconds)
        self._devices.server_kills = server_kills

    def pushed(self) -> dict[str, int]:
        return sum_of(self._evaluations.pushed) if len(self._halves) > 1 else {}

    def drain(self) -> None:
        self.clock.drain()
        self._devices.close()

    def end(self) -> None:
        self._devices.end()

    def own_summary(self) -> SummaryContent:
        """Return what each of several servers, and each aggregator, has received.

        Of a server that is until it reached the last version that was evaluated; of a run that was cut
        short, all that is in its rows. The updates that came too late for an aggregator's combination
        are counted beside it.
        """
        summary: SummaryContent = {}
        if len(self._halves) > 1:
            ledgers = self._evaluations.ledgers
            if not self.clock.finished:
                ledgers = [
                    self._ledger(index) | pushed
                    for index, pushed in enumerate(self._evaluations.pushed)
                ]
            summary["servers"] = dict(zip(self._server_names, ledgers, strict=True))
        if self._combining:
            summary["aggregators"] = {
                aggregator_name(index): {
                    **self._ledger(len(self._halves) + index),
                    "late": half.late,
                }
                for index, half in enumerate(self._combining)
            }
        return summary

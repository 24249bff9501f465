"""The systems that are simulated: a server with its workers, or peers, each with its clock."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from testbed.algorithms import has
from testbed.clock.devices import devices
from testbed.clock.faults import star_clock
from testbed.clock.mesh import mesh_clock
from testbed.clock.star import StarClock
from testbed.device_names import SERVER_NAME, peer_name, worker_name
from testbed.encoding_choice import EncodingChoice
from testbed.faults.schedule import Schedule
from testbed.learning.data import datasets
from testbed.learning.learner import Learner
from testbed.simulation.mesh import SimulatedPeers
from testbed.simulation.sliced_system import SlicedSystem
from testbed.simulation.star import SimulatedWorkers
from testbed.simulation.system import System, Witness, batches_of_all
from testbed.simulation.tree_system import TreeSystem
from testbed.training import computation
from testbed.training.computation import Computation
from testbed.training.exchange import ExchangeService
from testbed.training.objective import objective
from testbed.training.parameter_service import ParameterService
from testbed.training.peer_computation import PeerComputation, codecs
from testbed.training.settings import Settings
from testbed.training.times import Times
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.updates import FloatVector
from testbed.wire.encodings import Codec


class StarSystem(System):
    """A server and its workers."""

    clock: StarClock

    def __init__(
        self,
        settings: Settings,
        dataset: datasets.Dataset,
        learner: Learner,
        initial: FloatVector,
        observer: Witness,
    ) -> None:
        layout = learner.layout
        # The server's parameters are the learner's memory, so computing at them needs no copy.
        np.copyto(learner.parameters, initial)
        self._half = computation.server_half(settings, layout, learner.parameters)
        self._service = ParameterService(self._half, layout, settings, observer)
        codec, goal = _codec(settings, learner), objective(settings)
        batches = list(batches_of_all(settings, dataset))
        computations = [
            Computation(computation.worker_half(settings, layout, number), own, codec, goal)
            for number, own in enumerate(batches)
        ]
        protocol = WORKER_PROTOCOLS[self._half.protocol]

        def new_incarnation(worker: int, incarnation: int) -> Computation:
            """Make the computation of a worker that was killed: it has lost all but its images."""
            old = batches[worker]
            own = computation.batches(
                settings, dataset, old.shard, worker, memory=old, incarnation=incarnation
            )
            return Computation(computation.worker_half(settings, layout, worker), own, codec, goal)

        self._workers = SimulatedWorkers(
            self._service,
            computations,
            (learner, learner.twin()),
            protocol=protocol,
            instant=not settings.network.route_of
            and all(device.is_sent_at_once for device in settings.kinds_of_devices),
            settings=settings,
            dataset=dataset,
            new_incarnation=new_incarnation,
            on_fault=observer.fault,
        )
        self._busy = Times.of(settings).busy(computations[0].half.local_steps)
        timed = devices(settings, range(settings.workers), protocol, self._busy)
        self.clock = star_clock(
            [self._service],
            self._workers,
            timed,
            Schedule(settings.faults.rules, settings.seed, settings.workers),
        )

    @property
    def version(self) -> int:
        return self._half.version

    @property
    def parameters(self) -> FloatVector:
        """The server's parameters."""
        return self._half.parameters

    def ledger(self) -> dict[str, int]:
        """Return the bytes that entered the server."""
        return {
            "payload_bytes": self._service.payload_bytes,
            "message_bytes": self._service.message_bytes,
            "wire_bytes": self._workers.wire_bytes,
        }

    def over_links(self) -> dict[tuple[str, str], int]:
        found = {}
        for number, (sent, received) in enumerate(self._workers.over_links):
            found[worker_name(number), SERVER_NAME] = sent
            found[SERVER_NAME, worker_name(number)] = received
        return found

    def state(self) -> dict[str, Any]:
        return {
            "half": self._half.state(),
            "service": self._service.state(),
            "clock": self.clock.state(),
            "asked": self._busy.asked,
            "workers": self._workers.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._half.restore(state["half"])
        self._service.restore(state["service"])
        self.clock.restore(state["clock"])
        self._busy.go_on(state["asked"])
        self._workers.restore(state["workers"])

    def resume_after(self, host_seconds: float, server_kills: int = 0) -> None:
        self._workers.resume_after(host_seconds)
        self._workers.server_kills = server_kills

    def drain(self) -> None:
        self.clock.drain()
        self._workers.close()


class MeshSystem(System):
    """Peers, one of which is evaluated."""

    def __init__(
        self,
        settings: Settings,
        dataset: datasets.Dataset,
        learner: Learner,
        initial: FloatVector,
        observer: Witness,
    ) -> None:
        neighbours = computation.neighbours(settings)
        self._service = ExchangeService(settings, neighbours, observer)
        both = codecs(settings.training.encoding, learner.layout.sizes)
        computing = computation.computing(settings)
        batches = list(batches_of_all(settings, dataset))
        computations, goal = [], objective(settings)
        for number in range(settings.workers):
            half = computation.peer_half(settings, learner.layout, initial.copy(), number)
            own = batches[number] if number < computing else None
            computations.append(PeerComputation(half, own, both, neighbours[number], goal))
        self._peers = SimulatedPeers(self._service, computations, neighbours, learner)
        self.clock = mesh_clock(
            settings,
            self._service,
            self._peers,
            neighbours=neighbours,
            computing=computing,
            busy=Times.of(settings).busy(),
        )
        self._evaluated = settings.network.evaluated_peer

    @property
    def version(self) -> int:
        """The number of steps of all peers so far."""
        return self._service.updates

    @property
    def parameters(self) -> FloatVector:
        """The evaluated peer's parameters."""
        return self._peers.half(self._evaluated).parameters

    def ledger(self) -> dict[str, int]:
        """Return the bytes that entered all peers together."""
        return {
            "payload_bytes": sum(self._service.payload_bytes),
            "message_bytes": sum(self._service.message_bytes),
            "wire_bytes": sum(self._peers.wire_bytes),
        }

    def over_links(self) -> dict[tuple[str, str], int]:
        return {
            (peer_name(sender), peer_name(receiver)): size
            for (sender, receiver), size in self._peers.over_links.items()
        }

    def resume_after(self, host_seconds: float, server_kills: int = 0) -> None:
        self._peers.resume_after(host_seconds)

    def drain(self) -> None:
        """Close all connections; what is under way was counted when it was sent."""
        self._peers.close()

    def own_summary(self) -> dict[str, Any]:
        """Return what each peer received, and the digest of its model."""
        ledgers = zip(
            self._service.payload_bytes,
            self._service.message_bytes,
            self._peers.wire_bytes,
            strict=True,
        )
        return {
            "peers": {
                peer_name(peer): {
                    "payload_bytes": payload,
                    "message_bytes": message,
                    "wire_bytes": wire,
                    "parameters_sha256": self._peers.digest(peer),
                }
                for peer, (payload, message, wire) in enumerate(ledgers)
            }
        }


def system(
    settings: Settings,
) -> type[StarSystem] | type[SlicedSystem] | type[TreeSystem] | type[MeshSystem]:
    """Return the class that simulates the run's algorithm."""
    if settings.aggregators:
        return TreeSystem
    if not has(settings.training.algorithm["name"], "server"):
        return MeshSystem
    return StarSystem if settings.servers == 1 else SlicedSystem


def _codec(settings: Settings, learner: Learner) -> Codec:
    return Codec(EncodingChoice.model_validate(settings.training.encoding), learner.layout.sizes)

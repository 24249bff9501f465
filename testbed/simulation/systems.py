"""The systems that are simulated: servers with their workers, or peers, each with its clock."""

from functools import partial
from typing import Any

from testbed.algorithms import has
from testbed.clock.device_use import DeviceUse, of_peers
from testbed.clock.mesh import MeshClock, mesh_clock
from testbed.clock.peer_faults import strike
from testbed.device_names import peer_name
from testbed.learning.data import datasets
from testbed.learning.learner import Learner
from testbed.simulation.mesh import SimulatedPeers
from testbed.simulation.served_system import ServedSystem
from testbed.simulation.system import System, Witness, batches_of_all
from testbed.training import computation
from testbed.training.exchange import ExchangeService
from testbed.training.objective import objective
from testbed.training.peer_computation import PeerCheckpoints, PeerComputation, codecs
from testbed.training.settings import Settings
from testbed.training.times import Times
from testbed.updates import FloatVector


class MeshSystem(System):
    """Peers, one of which is evaluated."""

    clock: MeshClock

    def __init__(
        self,
        settings: Settings,
        dataset: datasets.Dataset,
        learner: Learner,
        initial: FloatVector,
        witness: Witness,
    ) -> None:
        self._settings = settings
        self._dataset, self._layout, self._initial = dataset, learner.layout, initial
        self._witness = witness
        self._goal, self._told = objective(settings), computation.diagnostics(settings)
        self._neighbours = neighbours = computation.neighbours(settings)
        self._service = ExchangeService(settings, neighbours)
        self._codecs = codecs(settings.training.encoding, learner.layout.sizes)
        computing = computation.computing(settings)
        self._batches = list(batches_of_all(settings, dataset))
        self._kept: dict[int, tuple[int, FloatVector]] = {}
        """The checkpoints of peers, by number: a version and its parameters."""
        self._peers = SimulatedPeers(
            self._service,
            [self._computation(number, (0, initial)) for number in range(settings.workers)],
            neighbours,
            learner,
            witness.fault,
            witness.record,
            self._made_again,
        )
        self._mesh = self.clock = mesh_clock(
            settings,
            self._service,
            self._peers,
            neighbours=neighbours,
            computing=computing,
            busy=Times.of(settings).busy(),
        )
        strike(self.clock, self._peers, self._service, settings)
        self._evaluated = settings.network.evaluated_peer

    def _computation(self, number: int, begins: tuple[int, FloatVector]) -> PeerComputation:
        """Make a peer's computation, which begins with parameters of a version."""
        version, parameters = begins
        half = computation.peer_half(
            self._settings, self._layout, parameters.copy(), number, version
        )
        every, checkpoints = self._settings.faults.steps_to_checkpoint(number), None
        if every is not None:
            checkpoints = PeerCheckpoints(every, partial(self._keep, number))
        return PeerComputation(
            half,
            self._batches[number] if number < len(self._batches) else None,
            self._codecs,
            self._neighbours[number],
            self._goal,
            self._told,
            checkpoints,
        )

    def _keep(self, number: int, version: int, parameters: FloatVector) -> None:
        self._kept[number] = version, parameters.copy()

    def _made_again(self, number: int, incarnation: int) -> PeerComputation:
        """Make the computation of a peer that comes back, which draws other mini-batches."""
        if number < len(self._batches):
            parts = computation.parts(self._settings, self._dataset.train_labels)
            self._batches[number] = computation.batches(
                *(self._settings, self._dataset, parts[number], number),
                memory=self._batches[number],
                incarnation=incarnation,
            )
        begins = self._kept.get(number, (0, self._initial))
        self._witness.returned(number, begins[0])
        return self._computation(number, begins)

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

    def device_use(self) -> list[DeviceUse]:
        return of_peers(self.clock, self._settings)

    def resume_after(self, host_seconds: float, server_kills: int = 0) -> None:
        self._peers.resume_after(host_seconds)

    def drain(self) -> None:
        """Close all connections; what is under way was counted when it was sent."""
        conditions = self._mesh.conditions
        gone = set() if conditions is None else set(conditions.unreachable())
        self._peers.close(sorted(gone - {self._evaluated}))

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


def system(settings: Settings) -> type[ServedSystem] | type[MeshSystem]:
    """Return the class that simulates the run's algorithm."""
    return ServedSystem if has(settings.training.algorithm["name"], "server") else MeshSystem

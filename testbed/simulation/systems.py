"""The systems that are simulated: servers with their workers, or peers, each with its clock."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256

import numpy as np

from testbed.algorithms import has
from testbed.checkpoints.stateful import State
from testbed.clock.device_use import DeviceUse, of_peers
from testbed.clock.mesh import MeshClock
from testbed.clock.peer_faults import mesh_clock
from testbed.device_names import peer_name
from testbed.learning.data import datasets
from testbed.learning.learner import Learner
from testbed.messages.fault_changes import FaultChange
from testbed.run_endings import SummaryContent
from testbed.simulation.peers_pool import PeersPool
from testbed.simulation.process_pool import processors
from testbed.simulation.served_system import ServedSystem
from testbed.simulation.system import System, Witness, batches_of_all
from testbed.simulation.wire_model import ModelledConnection
from testbed.training import computation
from testbed.training.exchange import ExchangeService, Step
from testbed.training.objective import objective
from testbed.training.peer_bytes import ArrivedBytes, Message
from testbed.training.peer_computation import (
    LocalPeer,
    PeerCheckpoints,
    PeerComputation,
    Sending,
    codecs,
)
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.training.times import Times
from testbed.updates import FloatVector, Update, as_bytes
from testbed.wire.frames import HEADER, SECRET_SIZE


class SimulatedPeer(LocalPeer):
    """One peer's process; ``under_way`` holds the updates on their way to it, by sender."""

    def __init__(
        self,
        number: int,
        computation: PeerComputation,
        learner: Learner,
        send: Callable[[Sequence[Sending]], None],
        pool: PeersPool | None,
    ) -> None:
        """Set up the peer, with the computation's model.

        Args:
            send: has updates reach the others.
        """
        super().__init__(computation)
        self.under_way: dict[int, deque[Update]] = {}
        self._learner = learner
        self._sends = send
        self._number, self._pool = number, pool

    def compute(self) -> None:
        if self._pool is None:
            self._compute_with(self._learner)
        else:
            self._pool.begin(self._number, self.computation)

    def step(self) -> Step:
        self._fetch()
        return super().step()

    def _fetch(self) -> None:
        """Take the gradient from the pool, if that computes it."""
        if self._pool is not None and self._pool.computes(self._number):
            self._loss = self._pool.finish(self._number, self._gradient)

    def die(self) -> None:
        """Drop the gradient that the pool computes, and all that it has kept for the peer."""
        if self._pool is not None:
            self._pool.begin_anew(self._number)

    def state(self) -> State:
        """Return what a checkpoint keeps, the gradient under way among it."""
        self._fetch()
        return {
            "computation": self.computation.state(),
            "gradient": self._gradient,
            "loss": self._loss,
            "under_way": self.under_way,
        }

    def restore(self, state: State) -> None:
        self.computation.restore(state["computation"])
        np.copyto(self._gradient, state["gradient"])
        self._loss, self.under_way = state["loss"], state["under_way"]

    def _send(self, sent: Sequence[Sending], version: int, loss: float = 0.0) -> None:
        self._sends(sent)

    def _next_from(self, sender: int) -> Update:
        return self.under_way[sender].popleft()

    def forget(self, peer: int) -> None:
        super().forget(peer)
        self.under_way.pop(peer, None)  # it is lost


class MeshSystem(System):
    """Peers, one of which is evaluated; they are the clock's stage.

    Attributes:
        peers: their present processes, by number.
    """

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
        self._bytes = ArrivedBytes(settings.workers, self._passed)
        self._service = ExchangeService(settings, neighbours, self._bytes)
        self._codecs = codecs(settings.encoding, learner.layout.sizes)
        self._batches = list(batches_of_all(settings, dataset))
        number = processors(settings, learner, initial, dataset)
        self._pool = PeersPool(number, self._batches, learner, self._goal) if number > 1 else None
        self._kept: dict[int, tuple[int, FloatVector]] = {}
        """The checkpoints of peers, by number: a version and its parameters."""
        self._learner = learner
        self.peers = [
            self._made(number, self._computation(number, (0, initial)))
            for number in range(settings.workers)
        ]
        # By the numbers of both peers, the higher one first.
        self._wire: dict[tuple[int, int], ModelledConnection] = {}
        self._kills = [0] * settings.workers
        self._dead: set[int] = set()
        self._began = time.monotonic()
        for caller, others in enumerate(neighbours):
            for called in others:
                if called < caller:
                    self._wire[caller, called] = ModelledConnection()
                    self._connect(caller, called)
        self._busy = Times.of(settings).busy()
        self.clock = mesh_clock(settings, self._service, self, self._busy)
        self._evaluated = settings.network.evaluated_peer

    def _made(self, peer: int, computation: PeerComputation) -> SimulatedPeer:
        send = partial(self._send, peer)
        return SimulatedPeer(peer, computation, self._learner, send, self._pool)

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

    def _made_again(self, number: int) -> PeerComputation:
        """Make the computation of a peer that comes back, which draws other mini-batches."""
        if number < len(self._batches):
            parts = computation.parts(self._settings, self._dataset.train_labels)
            self._batches[number] = computation.batches(
                *(self._settings, self._dataset, parts[number], number),
                memory=self._batches[number],
                incarnation=self._kills[number],
            )
        begins = self._kept.get(number, (0, self._initial))
        self._witness.returned(number, begins[0])
        return self._computation(number, begins)

    @property
    def version(self) -> int:
        return self._service.updates

    @property
    def parameters(self) -> FloatVector:
        return self.peers[self._evaluated].computation.half.parameters

    @property
    def entered(self) -> dict[tuple[int, int], int]:
        """The modelled wire bytes that have entered peers, by sender and receiver."""
        found = {}
        for sender, others in enumerate(self._neighbours):
            for receiver in others:
                connection, up = self._between(sender, receiver)
                found[sender, receiver] = connection.sent[up]
        return found

    def ledger(self) -> dict[str, int]:
        payload, messages = self._bytes.total
        return {
            "payload_bytes": payload,
            "message_bytes": messages,
            "wire_bytes": sum(sum(one.sent.values()) for one in self._wire.values()),
        }

    def over_links(self) -> dict[tuple[str, str], int]:
        return {
            (peer_name(sender), peer_name(receiver)): size
            for (sender, receiver), size in self.entered.items()
        }

    def device_use(self) -> list[DeviceUse]:
        return of_peers(self.clock, self._settings)

    def state(self) -> State:
        return {
            "service": self._service.state(),
            "clock": self.clock.state(),
            "busy": self._busy.state(),
            "peers": [peer.state() for peer in self.peers],
            "kept": self._kept,
            "wire": self._wire,
            "kills": self._kills,
            "dead": self._dead,
        }

    def restore(self, state: State) -> None:
        self._service.restore(state["service"])
        self._busy.restore(state["busy"])
        self._kept, self._kills, self._dead = state["kept"], state["kills"], state["dead"]
        self._wire = state["wire"]
        for peer, saved in zip(self.peers, state["peers"], strict=True):
            peer.restore(saved)
        self.clock.restore(state["clock"])

    def resume_after(self, host_seconds: float, server_kills: int = 0) -> None:
        self._began = time.monotonic() - host_seconds

    def drain(self) -> None:
        """Close all connections, over which what is under way arrives first."""
        # Those that do not learn that training is over are killed.
        for peer in {*self.clock.unreachable()} - {self._evaluated}:
            self._dead.add(peer)
            self._service.lose(peer)
        self._service.part()
        for pair, connection in self._wire.items():
            if not self._dead & {*pair}:
                for up in (True, False):
                    connection.ended(HEADER.size, up=up)
                connection.closed()

    def end(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def own_summary(self) -> SummaryContent:
        wire = [0] * self._settings.workers
        for (_, receiver), size in self.entered.items():
            wire[receiver] += size
        return {
            "peers": {
                peer_name(peer): {
                    "payload_bytes": self._bytes.payload[peer],
                    "message_bytes": self._bytes.messages[peer],
                    "undelivered_bytes": self._bytes.undelivered[peer],
                    "wire_bytes": wire[peer],
                    "parameters_sha256": sha256(
                        as_bytes(one.computation.half.parameters)
                    ).hexdigest(),
                }
                for peer, one in enumerate(self.peers)
            }
        }

    # -- the clock's stage

    def hands(self, peer: int) -> SimulatedPeer:
        return self.peers[peer]

    def host_time(self) -> float:
        return time.monotonic() - self._began

    def record(self, entries: Sequence[Entry]) -> None:
        self._witness.record(entries)

    def fault(self, record: FaultChange) -> None:
        self._witness.fault(record)

    def kill(self, peer: int) -> None:
        self._dead.add(peer)
        self._kills[peer] += 1
        self.peers[peer].die()

    def come_back(self, peer: int, others: Sequence[int], record: FaultChange) -> bool:
        self.fault(record)
        self._dead.remove(peer)
        again = self._made_again(peer)
        self.peers[peer] = self._made(peer, again)
        for absent in set(self._neighbours[peer]) - set(others):
            again.half.forget(absent)
        for other in others:
            self._connect(peer, other)
        return True

    # What is sent is with the others at once, and the clock gives a frozen peer nothing to do.

    def stop(self, peers: Sequence[int]) -> None:
        pass

    def freeze(self, peer: int) -> None:
        pass

    def thaw(self, peer: int) -> None:
        pass

    # -- what passes between them

    def _between(self, sender: int, receiver: int) -> tuple[ModelledConnection, bool]:
        """Return the connection of two peers, and the direction in which one of them sends."""
        pair = max(sender, receiver), min(sender, receiver)
        return self._wire[pair], pair[0] == sender

    def _connect(self, caller: int, called: int) -> None:
        connection, up = self._between(caller, called)
        connection.greeted([HEADER.size + SECRET_SIZE], HEADER.size, up=up)

    def _send(self, peer: int, sent: Sequence[Sending]) -> None:
        for sending in sent:
            # Copied: its receivers share it, and need it longer than the gradient lasts.
            update = sending.encoded.received.copy()
            for receiver, _, _ in sending.messages:
                if receiver in self._dead:
                    continue  # a rule that forgets nothing sends to it on, over no connection
                self.peers[receiver].under_way.setdefault(peer, deque()).append(update)

    def _passed(self, sender: int, message: Message) -> None:
        if message.receiver not in self._dead:
            connection, up = self._between(sender, message.receiver)
            connection.passed(message.size, up=up)


def system(settings: Settings) -> type[ServedSystem] | type[MeshSystem]:
    """Return the class that simulates the run's algorithm."""
    return ServedSystem if has(settings.algorithm.name, "server") else MeshSystem

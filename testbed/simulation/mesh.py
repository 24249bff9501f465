"""Simulated peers: a stage for ``testbed.clock.mesh``."""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testbed.algorithms.peer_half import PeerHalf
from testbed.learning.learner import Learner
from testbed.simulation.wire_model import Acknowledgements, ModelledIngress
from testbed.training.entries import Entry
from testbed.training.exchange import ExchangeService, Message, Step
from testbed.training.peer_computation import PeerComputation, Sending
from testbed.updates import FloatVector, Update
from testbed.wire.frames import HEADER, SECRET_SIZE


@dataclass(slots=True)
class _Peer:
    """One peer; ``under_way`` holds the updates on their way to it, by sender."""

    computation: PeerComputation
    gradient: FloatVector
    loss: float = 0.0
    under_way: dict[int, deque[Update]] = field(default_factory=dict)


class SimulatedPeers:
    """All simulated peers of a run."""

    def __init__(  # noqa: PLR0917 - what peers are made of
        self,
        service: ExchangeService,
        computations: Sequence[PeerComputation],
        neighbours: Sequence[Sequence[int]],
        learner: Learner,
        on_fault: Callable[[dict[str, Any]], None],
        record: Callable[[Sequence[Entry]], None],
        made_again: Callable[[int, int], PeerComputation],
    ) -> None:
        """Connect the peers.

        Args:
            computations: by the peers' numbers.
            neighbours: the peers that each peer talks to, by the peers' numbers.
            learner: computes all gradients.
            on_fault: writes the record of a fault down.
            record: records what the service has returned.
            made_again: makes the computation of a peer that comes back; called with its number and how
                often it was killed.
        """
        self._service = service
        self._learner = learner
        size = learner.layout.total
        self._peers = [_Peer(own, np.empty(size, np.float32)) for own in computations]
        self._ingress = [ModelledIngress() for _ in computations]
        self._between = {
            (sender, receiver): ModelledIngress()
            for sender, others in enumerate(neighbours)
            for receiver in others
        }
        self._acknowledgements: dict[tuple[int, int], Acknowledgements] = {}
        self._on_fault = on_fault
        self.record = record
        self._made_again = made_again
        self._neighbours = neighbours
        self._kills = [0] * len(neighbours)
        self._dead: set[int] = set()
        self._began = time.monotonic()
        for caller, others in enumerate(neighbours):
            for called in others:
                if called < caller:
                    self._connect(caller, called)

    def _connect(self, caller: int, called: int) -> None:
        for entered in self._entered(caller, called):
            entered.opened()
            entered.received(HEADER.size + SECRET_SIZE)
        for entered in self._entered(called, caller):
            entered.answered()
            entered.received(HEADER.size)

    def _entered(self, sender: int, receiver: int) -> tuple[ModelledIngress, ModelledIngress]:
        """Return the ledgers of what enters a peer: from all others, and from the sender."""
        return self._ingress[receiver], self._between[sender, receiver]

    @property
    def over_links(self) -> dict[tuple[int, int], int]:
        """The modelled wire bytes that peers sent each other, by sender and receiver."""
        return {pair: entered.wire_bytes for pair, entered in self._between.items()}

    @property
    def wire_bytes(self) -> list[int]:
        """The modelled wire bytes that entered each peer."""
        return [ingress.wire_bytes for ingress in self._ingress]

    def half(self, peer: int) -> PeerHalf:
        """Return a peer's half of the algorithm."""
        return self._peers[peer].computation.half

    def digest(self, peer: int) -> str:
        """Return the SHA-256 of a peer's parameters."""
        return hashlib.sha256(self.half(peer).parameters.tobytes()).hexdigest()

    def close(self, unreachable: Sequence[int]) -> None:
        """Count that peers tell each other that they have stopped, and that all connections end.

        Args:
            unreachable: the peers that do not learn that training is over, and are killed.
        """
        for peer in unreachable:
            self._dead.add(peer)
            self._service.lose(peer)
        self._service.part()
        for sender, receiver in self._between:
            if self._dead & {sender, receiver}:
                continue
            for entered in self._entered(sender, receiver):
                entered.received(HEADER.size)
                entered.closed()

    def resume_after(self, host_seconds: float) -> None:
        """Note that ``host_seconds`` of the host's clock have passed already."""
        self._began = time.monotonic() - host_seconds

    # -- the clock's stage

    def begin(self, peer: int) -> None:
        """Compute the peer's gradient at its model as it is now."""
        computing = self._peers[peer]
        gradient, computing.loss = computing.computation.gradient(self._learner)
        np.copyto(computing.gradient, gradient)

    def finish(self, peer: int) -> Step | None:
        """Take the peer's step and send; return the step."""
        stepping = self._peers[peer]
        step, sent = stepping.computation.step(stepping.gradient, stepping.loss)
        self._send(peer, sent)
        return step

    def _send(self, peer: int, sent: Sequence[Sending]) -> None:
        for sending in sent:
            # Copied: its receivers share it, and need it longer than the gradient lasts.
            update = sending.encoded.received.copy()
            for receiver, size, _ in sending.messages:
                if receiver in self._dead:
                    continue  # a rule that forgets nothing sends to it on, over no connection
                self._peers[receiver].under_way.setdefault(peer, deque()).append(update)
                acknowledgements = self._acknowledgements.setdefault(
                    (peer, receiver), Acknowledgements()
                )
                for entered in self._entered(peer, receiver):
                    entered.received(size)
                back = acknowledgements.of(size)
                for entered in self._entered(receiver, peer):
                    entered.acknowledged(back)

    def arrive(self, receiver: int, sender: int) -> Sequence[Message]:
        """Deliver the sender's next message to the receiver; return what the receiver sends."""
        receiving = self._peers[receiver]
        update = receiving.under_way[sender].popleft()
        sent = receiving.computation.receive(sender, update)
        self._send(receiver, sent)
        return [message for sending in sent for message in sending.messages]

    def ready(self, peer: int) -> bool:
        """Return True if the peer may compute its next gradient."""
        return self._peers[peer].computation.half.ready

    def waits_for(self, peer: int) -> Sequence[int]:
        """Return the peers that a peer waits for."""
        return self._peers[peer].computation.half.waits_for

    def suspect(self, peer: int, other: int) -> None:
        """Let a peer wait for another one no longer."""
        self._peers[peer].computation.half.suspect(other)

    def kill(self, peer: int) -> None:
        """Let a peer die: the others forget it, and what it has under way to them is lost."""
        self._dead.add(peer)
        self._kills[peer] += 1
        for other, one in enumerate(self._peers):
            if other not in self._dead:
                one.computation.half.forget(peer)
                one.under_way.pop(peer, None)

    def come_back(self, peer: int, others: Sequence[int], record: dict[str, Any]) -> bool:
        """Make a peer anew, which connects to others; always return True."""
        self._on_fault(record)
        self._dead.remove(peer)
        again = self._made_again(peer, self._kills[peer])
        self._peers[peer] = _Peer(again, np.empty(self._learner.layout.total, np.float32))
        for absent in set(self._neighbours[peer]) - set(others):
            again.half.forget(absent)
        for other in others:
            self._peers[other].computation.half.joined(peer)
            for pair in ((peer, other), (other, peer)):
                self._acknowledgements.pop(pair, None)
            self._connect(peer, other)
        return True

    def stop(self, peers: Sequence[int]) -> None:
        """Do nothing: what a simulated peer sends is with the others at once."""

    def freeze(self, peer: int) -> None:
        """Do nothing: the clock gives a frozen peer nothing to do."""

    def thaw(self, peer: int) -> None:
        """Do nothing."""

    def fault(self, record: dict[str, Any]) -> None:
        """Write the record of a fault down."""
        self._on_fault(record)

    def host_time(self) -> float:
        """Return the seconds of the host's clock since the simulation began."""
        return time.monotonic() - self._began

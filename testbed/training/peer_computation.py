"""The computation of a peer, under any driver: mini-batches, steps, the encoding of what it sends."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from testbed.algorithms.diagnostic import diagnosed
from testbed.algorithms.peer_half import Parcel, PeerHalf, parcels_of
from testbed.checkpoints.stateful import State
from testbed.encoding_choice import EncodingChoice
from testbed.learning.data.batches import Batches, Draw
from testbed.learning.learner import Learner
from testbed.training.exchange import Step
from testbed.training.objective import PLAIN, Objective
from testbed.training.own_buffers import KeptBuffers
from testbed.training.peer_bytes import Message
from testbed.training.pushed_parts import Encoded
from testbed.updates import FloatVector, Update, checked
from testbed.wire.encodings import Codec, UpdateCodec
from testbed.wire.frames import HEADER, Frame, Kind
from testbed.wire.own_encoding import codec_of


class Sending(NamedTuple):
    """An encoded update on its way to some peers.

    Attributes:
        kind: the message's kind: PUSH, or PARAMETERS if nothing of it may be rounded.
        encoded: the update, which may share memory with the gradient.
        peers: the peers that are sent a copy.
    """

    kind: Kind
    encoded: Encoded
    peers: Sequence[int]

    @property
    def messages(self) -> list[Message]:
        size = self.encoded.size
        return [Message(peer, HEADER.size + size, size) for peer in self.peers]


@dataclass(frozen=True, slots=True)
class PeerCheckpoints:
    """The checkpoints of a peer, from which it goes on when it comes back after a kill.

    Attributes:
        every: its own steps, since it began or came back, from one checkpoint to the next.
        keep: keeps a version and its parameters, float32 of shape (|Θ|,), which it has to copy.
    """

    every: int
    keep: Callable[[int, FloatVector], None]


class PeerComputation:
    """One peer's data, its half of the algorithm and the encoding of what it sends.

    Attributes:
        half: the peer's half of the algorithm; it owns the peer's model.
    """

    def __init__(  # noqa: PLR0917 - what a peer's computation is made of
        self,
        half: PeerHalf,
        batches: Batches | None,
        codecs: tuple[UpdateCodec, UpdateCodec],
        neighbours: Collection[int],
        objective: Objective = PLAIN,
        diagnostics: Sequence[str] = (),
        checkpoints: PeerCheckpoints | None = None,
    ) -> None:
        """Prepare the computation.

        Args:
            batches: None for a peer that computes nothing.
            codecs: the run's codec, and an exact one.
        """
        self._neighbours = frozenset(neighbours)
        self.half = half
        self._batches = batches
        self._objective = objective
        self._codec, self._exact = codecs
        self._base = 0
        self._buffers = KeptBuffers()
        self._diagnostics = diagnostics
        self._checkpoints = checkpoints
        self._steps = 0

    def state(self) -> State:
        batches = None if self._batches is None else self._batches.position
        own = {"batches": batches, "base": self._base, "steps": self._steps}
        return {"half": self.half.state(), **own, **self._buffers.state()}

    def restore(self, state: State) -> None:
        self.half.restore(state["half"])
        if self._batches is not None:
            self._batches.reposition(state["batches"])
        self._base, self._steps = state["base"], state["steps"]
        self._buffers.restore(state)

    def gradient(self, learner: Learner) -> tuple[FloatVector, float]:
        """Compute at the model as it is now; return the gradient (the learner's memory) and loss."""
        drawn = self.draw()
        assert self._batches is not None
        np.copyto(learner.parameters, self.half.parameters)
        self._buffers.put(learner)
        found = self._objective.gradient(learner, self._batches, drawn)
        self._buffers.take(learner)
        return found

    def draw(self) -> Draw:
        """Draw the next mini-batch, whose gradient is that of the model as it is now."""
        assert self._batches is not None
        self._base = self.half.version
        return self._batches.draw()

    def step(self, gradient: FloatVector, loss: float) -> tuple[Step, Sequence[Sending]]:
        """Take the step of a gradient; return the step's record, and what is to be sent."""
        self._buffers.commit()
        staleness = self.half.version - self._base
        parcels = parcels_of(self.half, self.half.step(gradient))
        sent = [self._encode(parcel) for parcel in parcels]
        messages = [message for sending in sent for message in sending.messages]
        told: Sequence[float] = ()
        if self._diagnostics:
            told = diagnosed(self.half.diagnose(), self._diagnostics)
        self._steps += 1
        if self._checkpoints is not None and self._steps % self._checkpoints.every == 0:
            self._checkpoints.keep(self.half.version, self.half.parameters)
        return Step(self._base, staleness, loss, messages, told), sent

    def receive(self, sender: int, update: Update) -> Sequence[Sending]:
        """Take in an update of another peer; return what is to be sent because of it."""
        parcels = parcels_of(self.half, self.half.receive(sender, update), answer=True)
        return [self._encode(parcel) for parcel in parcels]

    def decode(self, frame: Frame) -> Update:
        """Return the update of a message; it may share the body's memory.

        Raises:
            WireError: the message has no update of this run.
        """
        codec = self._exact if frame.kind is Kind.PARAMETERS else self._codec
        return codec.decode(frame.encoding, frame.body)

    def _encode(self, parcel: Parcel) -> Sending:
        if strangers := set(parcel.peers) - self._neighbours:
            raise ValueError(
                f"the algorithm sends to peer {min(strangers)}, which is in no conversation with the "
                "sender: its `conversations` have to name the pair"
            )
        codec = self._exact if parcel.exact else self._codec
        update = checked(parcel.update, len(self.half.parameters), self.half)
        encoding, body = codec.encode(update)
        encoded = Encoded(encoding, body, codec.rounded(update))
        return Sending(Kind.PARAMETERS if parcel.exact else Kind.PUSH, encoded, parcel.peers)


class LocalPeer(ABC):
    """A peer whose half and model are in this process: what carries out what its role decides."""

    def __init__(self, computation: PeerComputation) -> None:
        self.computation = computation
        self._half = computation.half
        self._gradient = np.empty_like(self._half.parameters)
        self._loss = 0.0

    @property
    def ready(self) -> bool:
        return self._half.ready

    @property
    def waits_for(self) -> Collection[int]:
        return self._half.waits_for

    @abstractmethod
    def compute(self) -> None:
        """Compute a gradient at the model as it is now."""

    def _compute_with(self, learner: Learner) -> None:
        gradient, self._loss = self.computation.gradient(learner)
        np.copyto(self._gradient, gradient)

    def step(self) -> Step:
        step, sent = self.computation.step(self._gradient, self._loss)
        self._send(sent, step.base_version, step.loss)
        return step

    def receive(self, sender: int) -> Sequence[Message]:
        update = self._next_from(sender)
        if update is None:
            return ()
        sent = self.computation.receive(sender, update)
        if not sent:
            return ()
        self._send(sent, self._half.version)
        return [message for sending in sent for message in sending.messages]

    def suspect(self, peer: int) -> None:
        self._half.suspect(peer)

    def forget(self, peer: int) -> None:
        self._half.forget(peer)

    def joined(self, peer: int) -> None:
        self._half.joined(peer)

    @abstractmethod
    def _send(self, sent: Sequence[Sending], version: int, loss: float = 0.0) -> None:
        """Send updates, which may share memory with the gradient."""

    @abstractmethod
    def _next_from(self, sender: int) -> Update | None:
        """Return the next update of another peer, or None if it is gone."""


def codecs(encoding: EncodingChoice, sizes: Sequence[int]) -> tuple[UpdateCodec, UpdateCodec]:
    """Make the run's codec, and an exact one."""
    return codec_of(encoding, sizes), Codec(EncodingChoice(), sizes)

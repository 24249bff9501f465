"""What a peer computes, whoever drives it: mini-batches, its step, the encoding of what it sends."""

from collections.abc import Sequence

import numpy as np

from testbed.algorithms.interface import FloatVector, PeerHalf
from testbed.learning.batches import Batches
from testbed.learning.learner import Learner
from testbed.roles.computation import Encoded
from testbed.roles.exchange import Message, Step
from testbed.wire.encodings import Codec
from testbed.wire.frames import HEADER


class PeerComputation:
    """One peer's data, its half of the algorithm and the encoding of what it sends.

    Attributes:
        half: of the algorithm; it owns the peer's model.
    """

    def __init__(self, half: PeerHalf, batches: Batches, codec: Codec) -> None:
        self.half = half
        self._batches = batches
        self._codec = codec
        self._base = 0

    def gradient(self, learner: Learner) -> tuple[FloatVector, float]:
        """Compute at the model as it is now: (the learner's gradient, loss)."""
        self._base = self.half.version
        np.copyto(learner.parameters, self.half.parameters)
        return learner.gradient(*self._batches.next())

    def step(
        self, gradient: FloatVector, loss: float
    ) -> tuple[Step, Sequence[tuple[Encoded, Sequence[int]]]]:
        """Take the step of a gradient.

        Returns:
            What is written down of it; what is to be sent to whom, sharing the gradient's memory.
        """
        staleness = self.half.version - self._base
        sent = []
        messages = []
        for parcel in self.half.step(gradient):
            encoding, body = self._codec.encode(parcel.update)
            encoded = Encoded(encoding, body, self._codec.rounded(parcel.update))
            sent.append((encoded, parcel.peers))
            size = HEADER.size + encoded.size
            messages += [Message(peer, size, encoded.size) for peer in parcel.peers]
        return Step(self._base, staleness, loss, messages), sent

"""The computation of a worker that pushes to several servers."""

from collections.abc import Sequence

from testbed.algorithms.worker_half import ONE_GRADIENT, Leg, WorkerHalf
from testbed.encoding_choice import EncodingChoice
from testbed.learning.data.batches import Batches
from testbed.training.computation import Computation, Encoded
from testbed.training.objective import PLAIN, Objective
from testbed.training.slices import Slice, joined
from testbed.updates import FloatVector, Layout, Update
from testbed.wire.encodings import Codec


class SlicedComputation(Computation):
    """A computation whose update is selected once, and encoded in one part for each server."""

    def __init__(  # noqa: PLR0917 - what a worker computes with
        self,
        half: WorkerHalf,
        batches: Batches,
        encoding: EncodingChoice,
        layout: Layout,
        cut: Sequence[Slice],
        objective: Objective = PLAIN,
        legs: Sequence[Leg] = ONE_GRADIENT,
    ) -> None:
        """Begin with no mini-batch drawn.

        Args:
            layout: of all parameters.
            cut: the servers' slices.
        """
        super().__init__(half, batches, Codec(encoding, layout.sizes), objective, legs)
        self._cut = list(cut)
        self._codecs = [Codec(encoding, one.layout.sizes) for one in cut]

    def encode_parts(self, gradient: FloatVector) -> list[Encoded]:
        """Select from a gradient what is to be pushed, and encode each server's part of it."""
        update = self._selected(gradient)
        parts: list[Encoded] = []
        for codec, one in zip(self._codecs, self._cut, strict=True):
            part = one.of(update)
            parts.append(Encoded(*codec.encode(part), codec.rounded(part)))
        self._tell_what_was_lost(update, [part.received for part in parts])
        return parts

    def measure_parts(self, gradient: FloatVector) -> list[tuple[int, Update]]:
        """Do the same without encoding; return each part's bytes, and it as its server will read it."""
        update = self._selected(gradient)
        parts = [one.of(update) for one in self._cut]
        received = [codec.rounded(part) for codec, part in zip(self._codecs, parts, strict=True)]
        self._tell_what_was_lost(update, received)
        sizes = [codec.measure(part) for codec, part in zip(self._codecs, parts, strict=True)]
        return list(zip(sizes, received, strict=True))

    def _tell_what_was_lost(self, update: Update, received: list[Update]) -> None:
        if any(codec.lossy for codec in self._codecs):
            self.half.lost(update, joined(received, self._cut))

"""The parts of an update that a worker pushes to its servers: one for each, encoded by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from testbed.encoding_choice import EncodingChoice
from testbed.training.settings import Settings
from testbed.training.slices import Slice, joined, slices_called, slices_of
from testbed.updates import Layout, Update
from testbed.wire.own_encoding import codec_of


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoded update on its way.

    Attributes:
        encoding, body: as in a message; the body may share memory with the gradient.
        received: the update as the receiver will read it.
    """

    encoding: int
    body: Sequence[bytes | memoryview]
    received: Update

    @property
    def size(self) -> int:
        return sum(map(len, self.body))


class PushedParts:
    """How updates are cut and encoded; one object serves all workers that call the same roles.

    Attributes:
        lossy: True if values may change on the way.
    """

    def __init__(self, encoding: EncodingChoice, cut: Sequence[Slice]) -> None:
        self.cut = list(cut)
        self._codecs = [codec_of(encoding, one.layout.sizes) for one in cut]
        self.lossy = self._codecs[0].lossy

    @classmethod
    def of_run(cls, settings: Settings, layout: Layout) -> Self:
        return cls(settings.encoding, slices_of(settings, layout))

    @classmethod
    def of_caller(cls, settings: Settings, layout: Layout, worker: int) -> Self:
        """Return how a worker's updates, or an aggregator's sums, are cut for those that it calls."""
        return cls(settings.encoding, slices_called(settings, layout, worker))

    def encode(self, update: Update) -> list[Encoded]:
        found = []
        for codec, one in zip(self._codecs, self.cut, strict=True):
            part = one.of(update)
            found.append(Encoded(*codec.encode(part), codec.rounded(part)))
        return found

    def measure(self, update: Update) -> list[tuple[int, Update]]:
        """Return each part's bytes, and it as its server will read it, without encoding it."""
        parts = [(codec, one.of(update)) for codec, one in zip(self._codecs, self.cut, strict=True)]
        return [(codec.measure(part), codec.rounded(part)) for codec, part in parts]

    def received(self, parts: Sequence[Update]) -> Update:
        """Return the update that the servers read together."""
        return joined(parts, self.cut)

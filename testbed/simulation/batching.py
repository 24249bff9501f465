"""Gradients of all outstanding workers at once, the first time that one of them is needed.

What a worker computes depends only on the version that it was sent and on the images that it drew, so
that whoever has begun can be computed. Serial and batched gradients are equal up to rounding.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from testbed.checkpoints.stateful import Stateful
from testbed.counted_copies import CountedCopies
from testbed.learning.batched.learner import BatchedLearner
from testbed.learning.data.datasets import Dataset
from testbed.training.settings import Settings
from testbed.updates import FloatVector

MOST = 256
"""Gradients computed at once at most: they are kept until their workers send them."""


@dataclass(slots=True, eq=False)
class Begun:
    """A computation that a worker has begun.

    Attributes:
        key: of its parameters, among the versions.
        version: theirs.
        drawn: the images' indices, for each local step.
        result: gradient and loss, once they are computed.
    """

    key: Hashable
    version: int
    drawn: Sequence[npt.NDArray[np.int64]]
    result: tuple[FloatVector, float] | None = None


class Batching(Stateful):
    """Computes what has been begun."""

    made_anew = frozenset({"_learner", "_versions"})

    def __init__(
        self, settings: Settings, dataset: Dataset, versions: CountedCopies[FloatVector]
    ) -> None:
        """Prepare the device that the spec names.

        Args:
            versions: the parameters of everything that is begun; what was computed is let go of there.
        """
        self._learner = BatchedLearner(
            settings.data.model, settings.training.batch_size, settings.data.device
        )
        self._learner.attach(
            torch.from_numpy(dataset.train_images), torch.from_numpy(dataset.train_labels)
        )
        self._versions = versions
        self._begun: dict[Begun, None] = {}

    def begin(self, begun: Begun) -> None:
        """Something was begun, whose version is held for it."""
        self._begun[begun] = None

    def drop(self, begun: Begun) -> None:
        """What was begun is of no more use."""
        if begun in self._begun:
            del self._begun[begun]
            self._versions.release(begun.key)

    def result(self, begun: Begun) -> tuple[FloatVector, float]:
        """The gradient and the loss of what was begun."""
        if begun.result is None:
            self._compute([begun, *(other for other in self._begun if other is not begun)][:MOST])
        assert begun.result is not None
        return begun.result

    def _compute(self, together: Sequence[Begun]) -> None:
        device = self._learner.device
        indices = torch.from_numpy(np.stack([one.drawn[-1] for one in together]))
        distinct = {
            key: torch.from_numpy(self._versions[key]).to(device)
            for key in dict.fromkeys(one.key for one in together)
        }
        # Rows of one block of memory: it goes when the last of them was sent.
        out = torch.empty(len(together), self._learner.layout.total, device=device)
        if len(distinct) == 1:
            (only,) = distinct.values()
            gradients, losses = self._learner.shared_of(only, indices, out)
        else:
            rows = [distinct[one.key] for one in together]
            gradients, losses = self._learner.gradients_of(rows, indices, out)
        on_host = gradients.cpu().numpy()
        for one, gradient, loss in zip(together, on_host, losses.tolist(), strict=True):
            one.result = gradient, loss
            self.drop(one)

"""Batched gradients: those of all outstanding workers are computed when the first of them is needed.

What a worker computes depends only on the version that it was sent and on the images that it drew, so
its gradient can be computed as soon as it has begun. Serial and batched gradients are equal up to
rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from testbed.checkpoints.stateful import Stateful
from testbed.clock.stage import Arrived
from testbed.learning.data.datasets import Dataset
from testbed.learning.learner import workers_gradients
from testbed.simulation.sent_versions import Part, SentVersions
from testbed.training import computation
from testbed.training.computation import Drawn
from testbed.training.objective import objective
from testbed.training.settings import Settings
from testbed.updates import FloatVector

MOST = 256
"""The most gradients computed together: they are kept until their workers send them."""


@dataclass(slots=True, eq=False)
class Begun:
    """A computation that a worker has begun.

    Attributes:
        parts: its parameters, one part from each server; none once they are no longer needed.
        result: gradient and loss, once they are computed together with others.
        messages: the message to each server, once one of them is needed.
    """

    parts: tuple[Part, ...]
    versions: Sequence[int]
    drawn: Drawn
    result: tuple[FloatVector, float] | None = None
    messages: Sequence[Arrived] | None = None

    def release(self, versions: SentVersions) -> None:
        """Release its parameters, unless that was done before."""
        for part in self.parts:
            versions.release(part)
        self.parts = ()


class Batching(Stateful):
    """Computes the gradients of computations that have begun, many together."""

    not_saved = frozenset({"_workers", "_objective", "_versions"})

    def __init__(self, settings: Settings, dataset: Dataset, versions: SentVersions) -> None:
        """Prepare the torch device that the spec names.

        Args:
            versions: the parameters of everything that is begun; released there once it is computed.
        """
        self._workers = workers_gradients(
            computation.model(settings),
            settings.training.batch_size,
            dataset,
            settings.spec.simulation.device,
            buffers=settings.spec.model.buffers,
            augmentation=computation.changes(settings),
        )
        self._objective = objective(settings)
        self._versions = versions
        self._begun: dict[Begun, None] = {}

    def begin(self, begun: Begun) -> None:
        """Add a computation that was begun, and whose version is held for it."""
        self._begun[begun] = None

    def drop(self, begun: Begun) -> None:
        """Remove a computation that is computed, or no longer needed."""
        self._begun.pop(begun, None)

    def result(self, begun: Begun) -> tuple[FloatVector, float]:
        """Return the gradient and the loss of a computation that was begun."""
        if begun.result is None:
            self._compute([begun, *(other for other in self._begun if other is not begun)][:MOST])
        assert begun.result is not None
        return begun.result

    def _compute(self, together: Sequence[Begun]) -> None:
        device = self._workers.device
        draws = [begun.drawn.batches[-1] for begun in together]
        indices = torch.from_numpy(np.stack([draw.images for draw in draws]))
        drawn = [draw.moves for draw in draws if draw.moves is not None]
        moves = torch.from_numpy(np.stack(drawn)) if drawn else None
        sent = {
            parts: self._versions.whole(parts)
            for parts in dict.fromkeys(begun.parts for begun in together)
        }
        distinct = {parts: torch.from_numpy(whole).to(device) for parts, whole in sent.items()}
        # Rows of one block of memory, which is freed when the last of them was sent.
        out = torch.empty(len(together), self._workers.vector.total, device=device)
        if len(distinct) == 1:
            (only,) = distinct.values()
            gradients, losses = self._workers.shared(only, indices, out, moves)
        else:
            rows = [distinct[begun.parts] for begun in together]
            gradients, losses = self._workers.gradients(rows, indices, out, moves)
        on_host = gradients.cpu().numpy()
        for begun, gradient, loss in zip(together, on_host, losses.tolist(), strict=True):
            self._objective.complete(gradient, sent[begun.parts], self._workers.vector.parameters)
            begun.result = gradient, loss
            begun.release(self._versions)
            self.drop(begun)

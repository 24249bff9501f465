"""The parameters that outstanding workers compute at: stored once for each version."""

from collections.abc import Hashable

import numpy as np

from testbed.algorithms.interface import FloatVector
from testbed.checkpoints.stateful import Stateful


class Versions(Stateful):
    """Copies of vectors by a key, each kept as long as somebody holds it."""

    made_anew = frozenset({"_spare"})

    def __init__(self) -> None:
        self._kept: dict[Hashable, FloatVector] = {}
        self._holders: dict[Hashable, int] = {}
        self._spare: list[FloatVector] = []

    def __getitem__(self, key: Hashable) -> FloatVector:
        return self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)

    def hold(self, key: Hashable, vector: FloatVector) -> None:
        """Keep ``vector`` under ``key``; a copy is made of the first one that comes."""
        if key in self._kept:
            self._holders[key] += 1
            return
        # Memory is used again: that of a fresh array would have to be zeroed by the kernel.
        copy = self._spare.pop() if self._spare else np.empty_like(vector)
        np.copyto(copy, vector)
        self._kept[key] = copy
        self._holders[key] = 1

    def release(self, key: Hashable) -> None:
        """One holder less; without the last one the copy goes."""
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._holders[key]
            self._spare.append(self._kept.pop(key))

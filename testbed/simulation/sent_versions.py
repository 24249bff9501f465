"""The parameters that servers have sent, for as long as a worker may still compute at them.

Each slice of the parameters has its copies. An aggregator holds all of them, like the only server above
it, and at one version both have the same: they share the copy. Of several servers it counts versions of
its own, of which there are copies of its own.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import numpy as np

from testbed.checkpoints.stateful import Stateful
from testbed.counted_copies import CountedCopies
from testbed.training.slices import Slice, whole
from testbed.updates import FloatVector

Part: TypeAlias = tuple[int, Hashable]
"""A slice's index, and the key of its copy: a version, or a version and the worker it was made for."""


class SentVersions(Stateful):
    """The copies of all slices."""

    not_saved = frozenset({"_cut"})

    def __init__(
        self,
        cut: Sequence[Slice],
        empty: Callable[[FloatVector], FloatVector] = np.empty_like,
    ) -> None:
        """Set up the store, without copies.

        Args:
            cut: the slices by their indices; those of aggregators overlap with others.
            empty: makes an array like another one, in the memory that copies are to be in.
        """
        self._cut = list(cut)
        self._copies: list[CountedCopies[FloatVector]] = [CountedCopies(empty) for _ in cut]

    def __len__(self) -> int:
        return sum(map(len, self._copies))

    def __getitem__(self, part: Part) -> FloatVector:
        """Return a slice's copy; float32, (|slice|,)."""
        of, key = part
        return self._copies[of][key]

    def hold(self, part: Part, vector: FloatVector) -> None:
        """Add a holder of a part; the first one makes a copy of ``vector``."""
        of, key = part
        self._copies[of].hold(key, vector)

    def hold_again(self, part: Part) -> None:
        """Add a holder of a part that has one."""
        of, key = part
        copies = self._copies[of]
        copies.hold(key, copies[key])

    def release(self, part: Part) -> None:
        of, key = part
        self._copies[of].release(key)

    def load(self, parts: Sequence[Part], into: FloatVector) -> None:
        """Copy parts that are all parameters together to ``into``, float32, (|Θ|,)."""
        for of, key in parts:
            self._cut[of].put(self._copies[of][key], into)

    def whole(self, parts: Sequence[Part]) -> FloatVector:
        """Return parts that are all parameters together, float32, (|Θ|,); do not change it."""
        found = [self[part] for part in parts]
        return found[0] if len(found) == 1 else whole(found, [self._cut[of] for of, _ in parts])

"""Copies of vectors by key; each is kept for as long as it has a holder."""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.checkpoints.stateful import Stateful

Vector = TypeVar("Vector", bound=npt.NDArray[Any])


class CountedCopies(Stateful, Generic[Vector]):
    """Copies of vectors of one shape and type; the key is usually a version.

    A vector that many workers were sent is stored once, until the last of them has answered.
    """

    not_saved = frozenset({"_spare"})

    def __init__(self) -> None:
        self._copies: dict[Hashable, Vector] = {}
        self._holders: dict[Hashable, int] = {}
        self._spare: list[Vector] = []

    def __getitem__(self, key: Hashable) -> Vector:
        return self._copies[key]

    def __len__(self) -> int:
        return len(self._copies)

    def hold(self, key: Hashable, vector: Vector) -> None:
        """Add a holder of ``key``; the first one makes a copy of ``vector``."""
        if key in self._copies:
            self._holders[key] += 1
            return
        # Used again, because the kernel would have to zero the memory of a new array.
        copy = self._spare.pop() if self._spare else np.empty_like(vector)
        np.copyto(copy, vector)
        self._copies[key] = copy
        self._holders[key] = 1

    def release(self, key: Hashable) -> None:
        """Remove a holder of ``key``, and the copy with the last one.

        Raises:
            KeyError: ``key`` has no holder.
        """
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._holders[key]
            self._spare.append(self._copies.pop(key))

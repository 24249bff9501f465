"""Copies of vectors by key; each is kept for as long as it has a holder."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.checkpoints.stateful import State, Stateful

Vector = TypeVar("Vector", bound=npt.NDArray[Any])


class CountedCopies(Stateful, Generic[Vector]):
    """Copies of vectors of one shape and type; the key is usually a version.

    A vector that many workers were sent is stored once, until the last of them has answered.
    """

    not_saved = frozenset({"_spare", "_empty"})

    def __init__(self, empty: Callable[[Vector], Vector] = np.empty_like) -> None:
        """Start without copies.

        Args:
            empty: makes an array like another one, with memory of its own.
        """
        self._copies: dict[Hashable, Vector] = {}
        self._holders: dict[Hashable, int] = {}
        self._spare: list[Vector] = []
        self._empty = empty

    def restore(self, state: State) -> None:
        """Go on from a state; its vectors are copied."""
        super().restore(state)
        self._copies = {key: self._copy(vector) for key, vector in self._copies.items()}

    def __getitem__(self, key: Hashable) -> Vector:
        return self._copies[key]

    def __len__(self) -> int:
        return len(self._copies)

    def hold(self, key: Hashable, vector: Vector) -> None:
        """Add a holder of ``key``; the first one makes a copy of ``vector``."""
        if key in self._copies:
            self._holders[key] += 1
            return
        self._copies[key] = self._copy(vector)
        self._holders[key] = 1

    def _copy(self, vector: Vector) -> Vector:
        # Used again, because the kernel would have to zero the memory of a new array.
        copy = self._spare.pop() if self._spare else self._empty(vector)
        np.copyto(copy, vector)
        return copy

    def release(self, key: Hashable) -> None:
        """Remove a holder of ``key``, and the copy with the last one.

        Raises:
            KeyError: ``key`` has no holder.
        """
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._holders[key]
            self._spare.append(self._copies.pop(key))

"""What an algorithm is: its worker half and its server half. Everything else is framework.

Both halves are pure state machines: arrays and updates in, arrays and updates out. No socket, no
clock, no sleep, no file, no global randomness, so that the same objects run inside a container and
inside a test, and every run of theirs can be replayed.

The server half owns the parameters. A worker *pulls* (it gets the parameters and their version, the
*base version*) and later *pushes* an update computed from them; applying an update increments the
version. The *delay* of an update is how many others were applied in between.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.wire.choice import EncodingChoice, Pulls

FloatVector: TypeAlias = npt.NDArray[np.float32]
IndexVector: TypeAlias = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each tensor of the model lies in the flat parameter vector.

    Attributes:
        names: the tensors' names, in the order in which they lie in the vector.
        sizes: how many parameters each holds; their sum is the length of the vector.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """Length of the flat parameter vector, |Θ|."""
        return sum(self.sizes)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The part of the flat vector that each tensor occupies."""
        ends = np.cumsum((0, *self.sizes)).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))


@dataclass(frozen=True, slots=True)
class DenseUpdate:
    """A value for every parameter.

    Attributes:
        values: float32, shape (|Θ|,).
    """

    values: FloatVector


@dataclass(frozen=True, slots=True)
class SparseUpdate:
    """Values for some parameters; the others are not part of the update.

    Attributes:
        indices: uint32, shape (m,), strictly ascending positions in the flat vector.
        values: float32, shape (m,); a value may be 0.
    """

    indices: IndexVector
    values: FloatVector


Update: TypeAlias = DenseUpdate | SparseUpdate


def as_bytes(vector: npt.NDArray[np.generic]) -> memoryview:
    """The memory of a contiguous vector as bytes, to send or to receive into, without a copy."""
    return memoryview(vector).cast("B")  # type: ignore[arg-type]


class Options(BaseModel):
    """An algorithm's parameters as they stand in the experiment file; ``name`` selects it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    label: str | None = Field(
        default=None,
        description="What this run is called in folders, tables and figures; default: the name and "
        "whatever tells it from the algorithm's defaults, e.g. adacomp-0.01.",
    )
    encoding: EncodingChoice | None = Field(
        default=None,
        description="How this run's updates are encoded: a short name or a mapping, in place of the "
        "experiment's as a whole; default (null): the experiment's.",
    )
    pulls: Pulls | None = Field(
        default=None,
        description="What this run's pulls bring, full or changed; default (null): the "
        "experiment's.",
    )


class WorkerHalf(ABC):
    """What a worker does with its gradient before it is pushed."""

    @abstractmethod
    def compress(self, gradient: FloatVector) -> Update:
        """Turn a gradient, float32 of shape (|Θ|,), into the update to push.

        The result may share memory with ``gradient``; it is used up before the next gradient.
        """

    def lost(self, update: Update, received: Update) -> None:  # noqa: B027 - most halves keep nothing
        """Learn what the encoding rounded away of the update that ``compress`` returned last.

        Called after ``compress`` and before the next one, and only when the encoding is lossy.

        Args:
            update: what ``compress`` returned.
            received: the same entries with the values as the server will read them; a half with
                error feedback keeps the difference, if finite.
        """


class ServerHalf(ABC):
    """The parameters and the rule by which updates change them.

    Attributes:
        parameters: float32, shape (|Θ|,), contiguous; changed in place by ``apply`` only.
        version: how many updates were applied so far.
    """

    def __init__(self, parameters: FloatVector) -> None:
        self.parameters = parameters
        self.version = 0
        self._changed_at: IndexVector | None = None

    def pull(self, worker: int) -> int:
        """Note that ``worker`` now gets the parameters; return their version, its base version."""
        return self.version

    def push(self, worker: int, update: Update, base_version: int) -> int:
        """Apply an update computed from ``base_version`` and return its delay.

        Raises:
            ValueError: the base version is not the one this worker pulled last, or lies ahead.
        """
        if not 0 <= base_version <= self.version:
            raise ValueError(
                f"base version {base_version} is not between 0 and the version {self.version}"
            )
        delay = self.version - base_version
        self._apply(worker, update, delay)
        self.version += 1
        if self._changed_at is not None:
            self._changed_at[self._changes(update)] = self.version
        return delay

    @abstractmethod
    def _apply(self, worker: int, update: Update, delay: int) -> None:
        """Change ``parameters``; ``version`` is still the one before this update."""

    def _changes(self, update: Update) -> IndexVector | slice:
        """Which parameters ``_apply`` may have changed; a rule that changes others says so here."""
        return update.indices if isinstance(update, SparseUpdate) else slice(None)

    def track_changes(self) -> None:
        """Note from now on, before any update, which version last changed each parameter."""
        self._changed_at = np.zeros(len(self.parameters), np.uint32)

    def changed_since(self, version: int | None) -> Update:
        """The values now of the parameters that changed after ``version``.

        Returns:
            All parameters, sharing their memory, if changes are not tracked, ``version`` is None, or
            so many changed that a bitmap of them would make the shorter answer longer.
        """
        if self._changed_at is None or version is None:
            return DenseUpdate(self.parameters)
        changed = self._changed_at > version
        unchanged = len(changed) - int(np.count_nonzero(changed))
        if 32 * unchanged <= len(changed):
            return DenseUpdate(self.parameters)
        indices = np.flatnonzero(changed).astype(np.uint32)
        return SparseUpdate(indices, self.parameters[indices])

    def forget(self, worker: int) -> None:  # noqa: B027 - most rules keep nothing per worker
        """Drop whatever is kept for a worker that will not push again."""


class Algorithm(ABC):
    """One algorithm: a name, its options, and how to make its two halves."""

    options_type: ClassVar[type[Options]]

    @staticmethod
    @abstractmethod
    def worker(options: Any, layout: Layout) -> WorkerHalf:
        """Make one worker's half."""

    @staticmethod
    @abstractmethod
    def server(
        options: Any, layout: Layout, parameters: FloatVector, learning_rate: float
    ) -> ServerHalf:
        """Make the server's half, which takes ``parameters`` over and changes them in place."""


Scope: TypeAlias = Literal["model", "tensor"]


def scopes(layout: Layout, scope: Scope) -> Sequence[slice]:
    """The parts of the flat vector within which a selection takes its share of the largest."""
    return (slice(0, layout.total),) if scope == "model" else layout.slices

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


def as_bytes(vector: FloatVector | IndexVector) -> memoryview:
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


class WorkerHalf(ABC):
    """What a worker does with its gradient before it is pushed."""

    @abstractmethod
    def compress(self, gradient: FloatVector) -> Update:
        """Turn a gradient, float32 of shape (|Θ|,), into the update to push.

        The result may share memory with ``gradient``; it is used up before the next gradient.
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
        return delay

    @abstractmethod
    def _apply(self, worker: int, update: Update, delay: int) -> None:
        """Change ``parameters``; ``version`` is still the one before this update."""

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

"""The worker's half of an algorithm around a parameter server."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.checkpoints.stateful import Stateful
from testbed.updates import FloatVector, Update


@dataclass(frozen=True, slots=True)
class Leg:
    """The gradients that a worker computes before it sends something, and what it sends then.

    Attributes:
        gradients: how many there are, computed one after the other.
        pushes: True if an update is pushed after them.
        asks: True if the worker then asks for parameters and waits for them. Otherwise it goes on at
            its own copy. Where the server sends every version unasked, this means nothing.
    """

    gradients: int = 1
    pushes: bool = True
    asks: bool = True

    def __post_init__(self) -> None:
        if self.gradients < 1:
            raise ValueError(f"a leg has one gradient or more, and not {self.gradients}")


ONE_GRADIENT: Sequence[Leg] = (Leg(),)
"""The legs of a worker that pushes every gradient and asks after each push."""


def most_before_asking(legs: Sequence[Leg], count: Callable[[Leg], int]) -> int:
    """Return the most that ``count`` finds in the legs from one that asks to the next that does."""
    most = since = 0
    for leg in (*legs, *legs):
        since += count(leg)
        most = max(most, since)
        since = 0 if leg.asks else since
    return most


class WorkerHalf(Stateful, ABC):
    """The worker's half of an algorithm: turns a gradient into the update to push.

    All attributes except those named in ``not_saved`` are its state, which a checkpoint stores:
    numbers, strings, tuples, lists, dicts, sets and arrays.
    """

    def local(
        self, step: int, parameters: FloatVector, gradient: FloatVector, version: int
    ) -> None:
        """Apply a gradient that is not pushed by itself to the worker's copy of the parameters.

        Those are all of a leg but the last, and also the last one if the leg does not push.

        Args:
            step: from 0 in each leg; at 0 the half forgets what is left of a computation that was
                dropped.
            parameters: float32, (|Θ|,), changed in place; the next gradient is computed there.
            gradient: float32, (|Θ|,).
            version: the base version: of the parameters that the worker was sent last.
        """
        raise NotImplementedError("a half with several local steps says what each of them does")

    def go_on(self, parameters: FloatVector, gradient: FloatVector, version: int) -> None:
        """Apply the last gradient of a leg that pushes and does not ask to the worker's copy.

        Called before ``compress`` is; the arguments are those of ``local``.
        """
        raise NotImplementedError("a half that goes on after a push says how its copy changes")

    @abstractmethod
    def compress(self, gradient: FloatVector) -> Update:
        """Turn a gradient, float32 of shape (|Θ|,), into the update to push.

        The result may share memory with ``gradient``; it is sent before the next gradient.
        """

    def lost(self, update: Update, received: Update) -> None:
        """Take back what the encoding rounded away of the update that ``compress`` returned last.

        Called between two calls of ``compress``, and only when the encoding is lossy.

        Args:
            update: the result of ``compress``.
            received: the same entries with the values as the server will read them; a half with
                error feedback keeps the difference, if finite.
        """

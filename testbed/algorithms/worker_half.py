"""The worker's half of an algorithm around a parameter server."""

from abc import ABC, abstractmethod

from testbed.checkpoints.stateful import Stateful
from testbed.updates import FloatVector, Update


class WorkerHalf(Stateful, ABC):
    """The worker's half of an algorithm: turns a gradient into the update to push.

    All attributes except those named in ``not_saved`` are its state, which a checkpoint stores:
    numbers, strings, tuples, lists, dicts, sets and arrays.

    Attributes:
        local_steps: gradients per push, the same for all workers; all but the last are passed to
            ``local``.
    """

    local_steps: int = 1

    def local(self, step: int, parameters: FloatVector, gradient: FloatVector) -> None:
        """Apply one of the gradients before the last to the worker's copy of the parameters.

        Args:
            step: from 0; at 0 the half forgets what is left of a computation that was dropped.
            parameters: float32, (|Θ|,), changed in place; the next gradient is computed there.
            gradient: float32, (|Θ|,).
        """
        raise NotImplementedError("a half with several local steps says what each of them does")

    @abstractmethod
    def compress(self, gradient: FloatVector) -> Update:
        """Turn a gradient, float32 of shape (|Θ|,), into the update to push.

        The result may share memory with ``gradient``; it is sent before the next gradient.
        """

    def lost(self, update: Update, received: Update) -> None:
        """Note what the encoding rounded away of the update that ``compress`` returned last.

        Called between two calls of ``compress``, and only when the encoding is lossy.

        Args:
            update: the result of ``compress``.
            received: the same entries with the values as the server will read them; a half with
                error feedback keeps the difference, if finite.
        """

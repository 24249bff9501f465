"""The server's half of an algorithm around a parameter server, and how workers get parameters."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from testbed.checkpoints.stateful import Stateful
from testbed.updates import DenseUpdate, FloatVector, IndexVector, SparseUpdate, Update

Protocol: TypeAlias = Literal["pull", "push-and-wait", "push-and-interrupt"]
"""The way in which workers get parameters (Xu et al., paper 004, §2).

pull: a worker that has pushed asks for the newest version; push-and-wait: the server sends every
version to all workers, which finish their gradient and then take the newest version they have;
push-and-interrupt: as push-and-wait, but a worker drops its gradient when a version arrives.
"""


class UnexpectedMessageError(ValueError):
    """A worker has sent what it must not send now: it is turned away, and the run goes on.

    Any other exception of a half is a mistake in the half, and ends the run.
    """


class ServerHalf(Stateful, ABC):
    """The server's half of an algorithm: the parameters and the rule by which pushes change them.

    All attributes except those named in ``not_saved`` are its state, as in ``WorkerHalf``.

    Attributes:
        parameters: float32, shape (|Θ|,), contiguous; changed in place, and only by
            ``push``, ``forget`` or ``expire``.
        version: the number of updates applied so far.
        protocol: how workers get parameters; the same for the whole run.
        needed: the fewest connected workers with which an update is still possible; when fewer are
            left, the run ends as failed.
        deadline: when ``expire`` is to be called, in seconds of the run's clock; None: there is no time
            limit, or it is over. It may be set by any other method.
        fit: returns an update as it is to be pushed at a version, where a model shares its buffers and
            the learning rate has a schedule; None: as it came. Whoever makes the half sets it.
    """

    not_saved: ClassVar[frozenset[str]] = frozenset({"fit"})

    protocol: Protocol = "pull"
    needed: int = 1
    deadline: float | None = None
    fit: Callable[[Update, int], Update] | None = None

    def __init__(self, parameters: FloatVector) -> None:
        self.parameters = parameters
        self.version = 0
        self._changed_at: IndexVector | None = None

    @abstractmethod
    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        """Record a pull of ``worker``; return the version that it is sent, its base version.

        Return None if the worker may not have them yet; it asks again at the next version.

        Args:
            time: now, in seconds since training began by the run's clock.
        """

    @abstractmethod
    def push(
        self,
        worker: int,
        update: Update,
        base_version: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        """Take an update computed from ``base_version``.

        Args:
            loss: the loss of the mini-batch that the update was computed on.
            time: when it arrived, in seconds since training began by the run's clock.

        Returns:
            Its delay; None if it arrived too late and was dropped.

        Raises:
            UnexpectedMessageError: the base version is in the future, or this worker was sent another
                one last.
        """

    def push_sum(
        self,
        worker: int,
        update: Update,
        base_version: int,
        count: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        """Take the sum of ``count`` updates, which an aggregator has combined; otherwise as ``push``.

        Raises:
            UnexpectedMessageError: as ``push``; or this algorithm takes no sums.
        """
        raise UnexpectedMessageError(
            f"worker {worker} pushed a sum of {count} updates, and it is no aggregator"
        )

    def finished(self, worker: int, base_version: int, *, time: float = math.nan) -> None:
        """Account for a gradient that a worker finished and did not send, because it knew it was late.

        A report of an aggregator says that it has no devices: nothing comes until it asks again.
        """

    def diagnose(self) -> Mapping[str, float]:
        """Return the values of the algorithm's ``diagnostics`` at the last update, by their names.

        Called once after each update, and only if the algorithm declares any; NaN is an unknown value.
        """
        return {}

    def outgoing(self, worker: int) -> FloatVector:
        """Return what a pull sends ``worker``: the parameters, or an estimate of them made for it.

        Called once after each ``pull``; the result is sent before any other method is called.
        """
        return self.parameters

    def _check_base(self, base_version: int) -> int:
        """Return the delay of an update of this base version, which must not be in the future."""
        if not 0 <= base_version <= self.version:
            raise UnexpectedMessageError(
                f"base version {base_version} is not between 0 and the version {self.version}"
            )
        return self.version - base_version

    def _advance(self, changes: IndexVector | slice) -> None:
        """Count an update that changed the parameters ``changes``."""
        self.version += 1
        if self._changed_at is not None:
            self._changed_at[changes] = self.version

    def track_changes(self) -> None:
        """Record from now on which version last changed each parameter; call before any update."""
        self._changed_at = np.zeros(len(self.parameters), np.uint32)

    def changed_since(self, vector: FloatVector, version: int | None) -> Update:
        """Return the part of a pull that differs from what this worker was sent at ``version``.

        Args:
            vector: the result of ``outgoing``.

        Returns:
            All of ``vector``, sharing its memory, if changes are not tracked, ``version`` is None,
            ``vector`` is not the parameters themselves, or nearly all parameters changed: then a bitmap
            of the changes takes more bytes than it saves.
        """
        if self._changed_at is None or version is None or vector is not self.parameters:
            return DenseUpdate(vector)
        changed = self._changed_at > version
        unchanged = len(changed) - int(np.count_nonzero(changed))
        if 32 * unchanged <= len(changed):
            return DenseUpdate(vector)
        indices = np.flatnonzero(changed).astype(np.uint32)
        return SparseUpdate(indices, vector[indices])

    def expire(self) -> None:
        """End the time limit, which may make an update; ``deadline`` is another one afterwards."""

    def joined(self, worker: int) -> None:
        """Count in a worker that is present, or present again after ``forget``."""

    def forget(self, worker: int) -> None:
        """Drop all that is kept for a worker that is lost or has been silent for too long.

        Later pushes from versions that it was sent before are not passed on; if it comes back,
        ``joined`` and ``pull`` are called first. This method may make the update that was waiting for
        this worker.
        """


class AsynchronousServer(ServerHalf):
    """A server's half that applies every push as an update when it arrives."""

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        return self.version

    def push(
        self,
        worker: int,
        update: Update,
        base_version: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        delay = self._check_base(base_version)
        self._apply(worker, update, delay)
        self._advance(self._changes(update))
        return delay

    @abstractmethod
    def _apply(self, worker: int, update: Update, delay: int) -> None:
        """Change ``parameters``; ``version`` is still the one before this update."""

    def _changes(self, update: Update) -> IndexVector | slice:
        """Return the parameters that ``_apply`` may have changed; override it if they are others."""
        return update.indices if isinstance(update, SparseUpdate) else slice(None)

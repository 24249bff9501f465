"""The interface of an algorithm: its halves. Everything else is framework.

Halves are pure state machines: arrays and updates in, arrays and updates out. They use no socket,
clock, sleep, file or global randomness, so that the same objects run inside a container, in the
simulator and in a test, and every run can be replayed. Times that a half may need are passed to it;
it must not depend on which clock they come from.

Algorithms have one of three shapes (``docs/algorithms.md``):

- *asynchronous parameter server*: a ``WorkerHalf`` and an ``AsynchronousServer``. A worker *pulls* (it
  gets the parameters and their version, its *base version*) and later *pushes* an update computed
  from them; every push is an update and increments the version. The *delay* of an update is the number
  of other updates applied since its base version;
- *synchronous parameter server*: a ``WorkerHalf`` and a ``ServerHalf`` that makes one update of several
  pushes and drops pushes that arrive too late. The server's half decides when a worker that asks for
  parameters may have them; its *protocol* says how the workers get a new version;
- *peer to peer*: a ``PeerHalf`` on every device, which owns a model, sends updates to other peers and
  applies the updates that arrive.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from testbed.checkpoints.stateful import Stateful
from testbed.encoding_choice import EncodingChoice, Pulls
from testbed.updates import DenseUpdate, FloatVector, IndexVector, Layout, SparseUpdate, Update


class Options(BaseModel):
    """An algorithm's parameters as in the experiment file; ``name`` selects the algorithm."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: str
    label: str | None = Field(
        default=None,
        description="What this run is called in folders, tables and figures; default: the name and "
        "whatever tells it from the algorithm's defaults, e.g. adacomp-0.01.",
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        description="This run's learning rate; default (null): the experiment's.",
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


Protocol: TypeAlias = Literal["pull", "push-and-wait", "push-and-interrupt"]
"""The way in which workers get parameters (Xu et al., paper 004, §2).

pull: a worker that has pushed asks for the newest version; push-and-wait: the server sends every
version to all workers, which finish their gradient and then take the newest version they have;
push-and-interrupt: as push-and-wait, but a worker drops its gradient when a version arrives.
"""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The facts about a run that its algorithm may use.

    Attributes:
        learning_rate: α (η).
        workers: n, the number of workers or peers, which are numbered from 0.
        batch_size: b, images per gradient.
        updates: the number of updates of the run.
        uplink: rate of the device's uplink in bit/s, that of its device class; for the server's half
            that of network.uplink. None where links are not shaped.
        gradient_time: mean seconds that a device computes and then waits, as in the spec; None where
            they depend on the host.
    """

    learning_rate: float
    workers: int
    batch_size: int
    updates: int
    uplink: int | None = None
    gradient_time: float | None = None


class ServerHalf(Stateful, ABC):
    """The server's half of an algorithm: the parameters and the rule by which pushes change them.

    All attributes except those named in ``not_saved`` are its state, as in ``WorkerHalf``.

    Attributes:
        parameters: float32, shape (|Θ|,), contiguous; changed in place, by ``push`` or ``forget`` only.
        version: the number of updates applied so far.
        protocol: how workers get parameters; the same for the whole run.
        needed: the number of workers below which there is no further update.
    """

    protocol: Protocol = "pull"
    needed: int = 1

    def __init__(self, parameters: FloatVector) -> None:
        self.parameters = parameters
        self.version = 0
        self._changed_at: IndexVector | None = None

    @abstractmethod
    def pull(self, worker: int) -> int | None:
        """Note that ``worker`` is now sent the parameters; return their version, its base version.

        Return None if the worker may not have them yet; it asks again at the next version.
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
            ValueError: the base version is in the future, or this worker was sent another one last.
        """

    def finished(self, worker: int, base_version: int, *, time: float = math.nan) -> None:
        """Note that a worker finished a gradient and did not send it, because it knew it was late."""

    def outgoing(self, worker: int) -> FloatVector:
        """Return what a pull sends ``worker``: the parameters, or an estimate of them made for it.

        Called once after each ``pull``; the result is sent before any other method is called.
        """
        return self.parameters

    def _check_base(self, base_version: int) -> int:
        """Return the delay of an update of this base version, which must not be in the future."""
        if not 0 <= base_version <= self.version:
            raise ValueError(
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

    def joined(self, worker: int) -> None:
        """Note that a worker is present, or present again after ``forget``."""

    def forget(self, worker: int) -> None:
        """Drop all that is kept for a worker that is lost or has been silent for too long.

        Later pushes from versions that it was sent before are not passed on; if it comes back,
        ``joined`` and ``pull`` are called first. This method may lower ``needed``, and make the update
        that was waiting for this worker.
        """


class AsynchronousServer(ServerHalf):
    """A server's half that applies every push as an update when it arrives."""

    def pull(self, worker: int) -> int | None:
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


class PeerHalf(ABC):
    """One peer's model, and the rule by which it exchanges updates with the others.

    Attributes:
        parameters: float32, shape (|Θ|,), contiguous; changed in place, by these methods only.
        version: the number of updates, its own and others', that it has applied.
        paced: True if ``ready`` may ever be false.
        answers: True if ``receive`` may ever return something to send.
    """

    paced: bool = False
    answers: bool = False

    def __init__(self, parameters: FloatVector) -> None:
        self.parameters = parameters
        self.version = 0

    @abstractmethod
    def step(self, gradient: FloatVector) -> Sequence["Parcel"]:
        """Apply the peer's own gradient, float32 of shape (|Θ|,); return the parcels to send.

        Parcels may share memory with ``gradient``; they are sent before the next gradient.
        """

    @abstractmethod
    def receive(self, sender: int, update: Update) -> Sequence["Parcel"]:
        """Take an update that arrived from another peer; updates of one sender arrive in order.

        Returns:
            The parcels to send in answer; none unless the class sets ``answers``.
        """

    def forget(self, peer: int) -> None:  # noqa: B027 - most rules keep nothing per peer
        """Drop all that is kept for a peer that is lost: it sends and receives nothing any more."""

    @property
    def ready(self) -> bool:
        """True if the peer may compute its next gradient now; asked again after every ``receive``."""
        return True


@dataclass(frozen=True, slots=True)
class Parcel:
    """An update for some peers, each of which is sent a copy.

    Attributes:
        update: the update to send.
        peers: their numbers, in the order in which the copies are sent.
        exact: True if no value may be rounded, whatever the run's encoding: it holds parameters.
    """

    update: Update
    peers: Sequence[int]
    exact: bool = False


class Algorithm(ABC):
    """An algorithm: the type of its options, and functions that make its halves."""

    options_type: ClassVar[type[Options]]

    @staticmethod  # noqa: B027 - most options fit any run
    def check(options: Any, conditions: Conditions) -> None:
        """Check, before anything is started, that the options fit the run.

        Raises:
            SpecError: they do not.
        """


class ServedAlgorithm(Algorithm):
    """An algorithm with a parameter server, asynchronous or synchronous."""

    @staticmethod
    def protocol(options: Any) -> Protocol:
        """Return how workers get parameters; the server's half must say the same."""
        return "pull"

    @classmethod
    def synchronous(cls, options: Any) -> bool:
        """Return True if an update may wait for a worker, so that a silent worker delays the others."""
        return cls.protocol(options) != "pull"

    @staticmethod
    @abstractmethod
    def worker(options: Any, layout: Layout, conditions: Conditions) -> WorkerHalf:
        """Make one worker's half."""

    @staticmethod
    @abstractmethod
    def server(
        options: Any, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        """Make the server's half, which owns ``parameters`` from now on and changes them in place."""


class PeerAlgorithm(Algorithm):
    """An algorithm without a server, or whose servers are peers themselves."""

    @staticmethod
    def computing(options: Any, conditions: Conditions) -> int:
        """Return the number of peers, from peer 0 on, that compute gradients; the others only answer.

        The training images are partitioned among the peers that compute.
        """
        return conditions.workers

    @staticmethod
    @abstractmethod
    def peer(
        options: Any, layout: Layout, parameters: FloatVector, number: int, conditions: Conditions
    ) -> PeerHalf:
        """Make one peer's half, which owns ``parameters`` from now on and changes them in place."""


Scope: TypeAlias = Literal["model", "tensor"]


def scopes(layout: Layout, scope: Scope) -> Sequence[slice]:
    """Return the parts of the flat vector in each of which a selection takes the largest entries."""
    return (slice(0, layout.total),) if scope == "model" else layout.slices

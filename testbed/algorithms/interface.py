"""What an algorithm is: its halves. Everything else is framework.

Halves are pure state machines: arrays and updates in, arrays and updates out. No socket, no clock, no
sleep, no file, no global randomness, so that the same objects run inside a container, in the simulator
and in a test, and every run of theirs can be replayed. Times that a half may want to learn from are
handed to it; whose clock they are is not its business.

Algorithms have one of three shapes (``docs/algorithms.md``):

- *asynchronous parameter server*: a ``WorkerHalf`` and an ``AsynchronousServer``. A worker *pulls* (it
  gets the parameters and their version, its *base version*) and later *pushes* an update computed
  from them; every push is an update and increments the version. The *delay* of an update is how many
  others were applied since its base version;
- *synchronous parameter server*: a ``WorkerHalf`` and a ``ServerHalf`` that makes an update of several
  pushes and drops those that come too late; whether a worker that asks for parameters may have them
  yet is its decision, and how the workers come by a new version its *protocol*;
- *peer to peer*: a ``PeerHalf`` on every device, which owns a model, sends updates to other peers and
  applies what arrives.
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
    """An algorithm's parameters as they stand in the experiment file; ``name`` selects it."""

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
    """What a worker does with its gradient before it is pushed.

    All of its attributes but those that it names in ``made_anew`` are its state, which a checkpoint
    keeps: numbers, texts, tuples, lists, dicts, sets and arrays of them.

    Attributes:
        local_steps: gradients per push, the same of all workers; all but the last one are given to
            ``local``.
    """

    local_steps: int = 1

    def local(self, step: int, parameters: FloatVector, gradient: FloatVector) -> None:
        """Take one of the gradients before the last, and change the worker's copy of the parameters.

        Args:
            step: from 0, when whatever is left of a computation that was dropped is to be forgotten.
            parameters: float32, (|Θ|,), to be changed in place; the next gradient is computed there.
            gradient: float32, (|Θ|,).
        """
        raise NotImplementedError("a half with several local steps says what each of them does")

    @abstractmethod
    def compress(self, gradient: FloatVector) -> Update:
        """Turn a gradient, float32 of shape (|Θ|,), into the update to push.

        The result may share memory with ``gradient``; it is used up before the next gradient.
        """

    def lost(self, update: Update, received: Update) -> None:
        """Learn what the encoding rounded away of the update that ``compress`` returned last.

        Called after ``compress`` and before the next one, and only when the encoding is lossy.

        Args:
            update: what ``compress`` returned.
            received: the same entries with the values as the server will read them; a half with
                error feedback keeps the difference, if finite.
        """


Protocol: TypeAlias = Literal["pull", "push-and-wait", "push-and-interrupt"]
"""How workers come by parameters (Xu et al., paper 004, §2).

pull: a worker that has pushed asks for the newest; push-and-wait: the server sends every version to
all workers, which finish what they compute and then take the newest they have; push-and-interrupt:
likewise, and workers drop what they compute when a version arrives.
"""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What an algorithm is told of the run that it is part of.

    Attributes:
        learning_rate: α (η).
        workers: n, how many workers or peers there are, numbered from 0.
        batch_size: b, images per gradient.
        updates: how many updates the run lasts.
        uplink: rate of the device's uplink in bit/s, where device classes may differ; the server's half
            is told network.uplink. None where links are not shaped.
        gradient_time: mean seconds that a device computes and then waits, as the spec has them; None
            where only the host knows.
    """

    learning_rate: float
    workers: int
    batch_size: int
    updates: int
    uplink: int | None = None
    gradient_time: float | None = None


class ServerHalf(Stateful, ABC):
    """The parameters and the rule by which what workers push changes them.

    All of its attributes but those that it names in ``made_anew`` are its state, as a worker's half's.

    Attributes:
        parameters: float32, shape (|Θ|,), contiguous; changed in place, and by ``push`` only.
        version: how many updates were applied so far.
        protocol: how workers come by parameters; the same for the whole run.
        needed: with fewer workers than this there will be no further update.
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

        None: it is not to have them yet; the next version will bring it to ask again.
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
            loss: of the mini-batch it was computed on.
            time: when it arrived, in seconds since training began by the run's clock.

        Returns:
            Its delay; None if it came too late and was dropped.

        Raises:
            ValueError: the base version lies ahead, or is not what this worker was sent last.
        """

    def finished(self, worker: int, base_version: int, *, time: float = math.nan) -> None:
        """Learn that a worker finished a gradient that it did not send: it knew it was late."""

    def outgoing(self, worker: int) -> FloatVector:
        """What ``worker`` is sent by a pull: the parameters, or an estimate made of them for it.

        Called once behind each ``pull``; the result is used up before anything else is called.
        """
        return self.parameters

    def _check_base(self, base_version: int) -> int:
        """The delay of an update of this base version, which must not lie ahead."""
        if not 0 <= base_version <= self.version:
            raise ValueError(
                f"base version {base_version} is not between 0 and the version {self.version}"
            )
        return self.version - base_version

    def _advance(self, changes: IndexVector | slice) -> None:
        """Count an update, which changed these parameters."""
        self.version += 1
        if self._changed_at is not None:
            self._changed_at[changes] = self.version

    def track_changes(self) -> None:
        """Note from now on, before any update, which version last changed each parameter."""
        self._changed_at = np.zeros(len(self.parameters), np.uint32)

    def changed_since(self, vector: FloatVector, version: int | None) -> Update:
        """What a pull brings, as far as it differs from what this worker was sent at ``version``.

        Args:
            vector: what ``outgoing`` returned.

        Returns:
            All of ``vector``, sharing its memory, if changes are not tracked, ``version`` is None, it
            is not the parameters themselves, or so many changed that a bitmap of them would make the
            shorter answer longer.
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
        """Learn that a worker is there, or there again behind ``forget``."""

    def forget(self, worker: int) -> None:
        """Drop whatever is kept for a worker: it is gone, or has been silent for too long.

        What it still pushes of what it was sent before is not handed in; if it comes back, ``joined``
        and ``pull`` are called first. It may lower ``needed``, and make the update that was waiting
        for this worker.
        """


class AsynchronousServer(ServerHalf):
    """Every push is an update, applied when it arrives."""

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
        """Which parameters ``_apply`` may have changed; a rule that changes others says so here."""
        return update.indices if isinstance(update, SparseUpdate) else slice(None)


class PeerHalf(ABC):
    """One peer's model, and what it exchanges with the others.

    Attributes:
        parameters: float32, shape (|Θ|,), contiguous; changed in place, by these methods only.
        version: how many updates, its own and others', it has applied.
        paced: whether ``ready`` may ever be false.
        answers: whether ``receive`` may ever return something to send.
    """

    paced: bool = False
    answers: bool = False

    def __init__(self, parameters: FloatVector) -> None:
        self.parameters = parameters
        self.version = 0

    @abstractmethod
    def step(self, gradient: FloatVector) -> Sequence["Parcel"]:
        """Take its own gradient, float32 of shape (|Θ|,); return what is to be sent to whom.

        Parcels may share memory with ``gradient``; they are used up before the next gradient.
        """

    @abstractmethod
    def receive(self, sender: int, update: Update) -> Sequence["Parcel"]:
        """Take an update that arrived from another peer; those of one sender come in their order.

        Returns:
            What is to be sent because of it; nothing unless the class says that it ``answers``.
        """

    def forget(self, peer: int) -> None:  # noqa: B027 - most rules keep nothing per peer
        """Drop whatever is kept for a peer that is gone: nothing will come from it, or get there."""

    @property
    def ready(self) -> bool:
        """Whether it may compute its next gradient now; asked again behind every ``receive``."""
        return True


@dataclass(frozen=True, slots=True)
class Parcel:
    """An update for some peers; each of them is sent a copy.

    Attributes:
        update: what is sent.
        peers: their numbers, in the order in which the copies leave.
        exact: whether no value may be rounded on the way, whatever the run's encoding: parameters.
    """

    update: Update
    peers: Sequence[int]
    exact: bool = False


class Algorithm(ABC):
    """One algorithm: a name, its options, and how to make its halves."""

    options_type: ClassVar[type[Options]]

    @staticmethod  # noqa: B027 - most options fit any run
    def check(options: Any, conditions: Conditions) -> None:
        """See, before anything is started, whether the options fit the run.

        Raises:
            SpecError: they do not.
        """


class ServedAlgorithm(Algorithm):
    """An algorithm with a parameter server, of either shape."""

    @staticmethod
    def protocol(options: Any) -> Protocol:
        """How workers come by parameters; its server's half says the same."""
        return "pull"

    @classmethod
    def synchronous(cls, options: Any) -> bool:
        """Whether an update may wait for a worker, so that one that is silent holds up the others."""
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
        """Make the server's half, which takes ``parameters`` over and changes them in place."""


class PeerAlgorithm(Algorithm):
    """An algorithm without a server, or with servers that are peers among others."""

    @staticmethod
    def computing(options: Any, conditions: Conditions) -> int:
        """How many of the peers compute gradients, those from 0 on; the others only answer.

        The training images are shared out among those that compute.
        """
        return conditions.workers

    @staticmethod
    @abstractmethod
    def peer(
        options: Any, layout: Layout, parameters: FloatVector, number: int, conditions: Conditions
    ) -> PeerHalf:
        """Make one peer's half, which takes ``parameters`` over and changes them in place."""


Scope: TypeAlias = Literal["model", "tensor"]


def scopes(layout: Layout, scope: Scope) -> Sequence[slice]:
    """The parts of the flat vector within which a selection takes its share of the largest."""
    return (slice(0, layout.total),) if scope == "model" else layout.slices

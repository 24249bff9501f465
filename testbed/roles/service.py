"""What a parameter server decides: no socket, no clock, no thread.

The server's loop, the virtual clock and the simulator all drive this one object: they tell it who asked
and who pushed, in the order in which that happened by their clock, and ask it who is to be sent
parameters now, and what.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from testbed.algorithms.interface import FloatVector, Layout, ServerHalf, Update
from testbed.checkpoints.stateful import Stateful
from testbed.roles.settings import Settings
from testbed.wire.choice import EncodingChoice
from testbed.wire.encodings import Codec

UpdateRow: TypeAlias = tuple[int, int, int, int, int, int, float, float, float, bool]
"""The fields of ``telemetry.records.UPDATE``."""


class Observer(Protocol):
    """Whoever writes down what a service did."""

    def row(self, row: UpdateRow, version: int) -> None:
        """A push was taken in, which led to this version."""

    def checkpoint(self) -> None:
        """The version that there is now is to be evaluated."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a worker sent.

    Attributes:
        base_version: the version that it was computed at.
        update: None if the worker only reports that it has finished.
        payload_bytes: the encoded update's.
        loss: of the mini-batch; NaN in a report.
    """

    base_version: int
    update: Update | None
    payload_bytes: int
    loss: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker is sent.

    Attributes:
        version: of the parameters.
        vector: what it has when it has read this, float32, (|Θ|,); used up before the next answer.
        encoding, body: as in a message; the body shares the vector's memory, so that what is not
            sent at once is to be copied.
    """

    version: int
    vector: FloatVector
    encoding: int
    body: Sequence[bytes | memoryview]


class ParameterService(Stateful):
    """Decides for one run.

    Attributes:
        half: the algorithm's.
        payload_bytes: of all pushes so far.
        message_bytes: of all messages so far.
        finished: whether the run's updates are complete.
    """

    made_anew = frozenset(
        {"half", "_updates", "_evaluate_every", "_observer", "_exact", "_broadcasts"}
    )

    def __init__(
        self, half: ServerHalf, layout: Layout, settings: Settings, observer: Observer
    ) -> None:
        self.half = half
        self.payload_bytes = 0
        self.message_bytes = 0
        self._updates = settings.updates
        self._evaluate_every = settings.evaluate_every
        self._observer = observer
        self._exact = Codec(EncodingChoice(), layout.sizes)
        if settings.pulls == "changed":
            half.track_changes()
        self._broadcasts = half.protocol != "pull"
        self._workers: dict[int, int | None] = {}
        self._bytes: dict[int, int] = {}
        self._asking: dict[int, None] = {}
        self._blocked: dict[int, None] = {}
        self._begun = False

    @property
    def finished(self) -> bool:
        """Whether the run's updates are complete."""
        return self.half.version >= self._updates

    @property
    def begun(self) -> bool:
        """Whether training has begun."""
        return self._begun

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    def join(self, worker: int) -> None:
        """A worker is there; in the order in which they come."""
        self._workers[worker] = None
        self._bytes[worker] = 0

    def leave(self, worker: int) -> None:
        """A worker is there no more."""
        if worker in self._workers:
            before = self.half.version
            del self._workers[worker]
            self._asking.pop(worker, None)
            self._blocked.pop(worker, None)
            self.half.forget(worker)
            # Who waited for this one may go on.
            self._unblock()
            self._advanced(before)

    def begin(self) -> None:
        """Training begins: version 0 is evaluated and, if that is the protocol, sent to all."""
        self._begun = True
        self._observer.checkpoint()
        if self._broadcasts:
            self._asking = dict.fromkeys(sorted(self._workers))

    def count(self, worker: int, size: int) -> None:
        """A message of this many bytes was taken in."""
        self.message_bytes += size
        self._bytes[worker] += size

    def asked(self, worker: int) -> None:
        """A worker asks for parameters."""
        self._asking[worker] = None

    @property
    def stalled(self) -> bool:
        """Whether all workers wait for parameters that they may not have: nobody will push."""
        return self._begun and 0 < len(self._workers) == len(self._blocked)

    def is_asking(self, worker: int) -> bool:
        """Whether it has asked and was not sent any yet."""
        return worker in self._asking or worker in self._blocked

    def pushed(self, worker: int, push: Pushed, time: float, host_time: float) -> None:
        """Take a push in, or a late worker's report.

        Args:
            time: when it arrived, in seconds since training began by the run's clock.
            host_time: by the host's clock.

        Raises:
            ValueError: the base version is not one that it can have.
        """
        half, before = self.half, self.half.version
        self.payload_bytes += push.payload_bytes
        if self.finished:
            return
        if push.update is None:
            if push.base_version > before:
                raise ValueError(f"base version {push.base_version} is ahead of {before}")
            half.finished(worker, push.base_version, time=time)
            delay = None
        else:
            delay = self._apply(worker, push.update, push, time)
        self._observer.row(
            (
                before + (delay is not None),
                worker,
                push.base_version,
                before - push.base_version if delay is None else delay,
                push.payload_bytes,
                self._bytes[worker],
                push.loss,
                time,
                host_time,
                delay is not None,
            ),
            half.version,
        )
        self._bytes[worker] = 0
        self._advanced(before)

    def _apply(self, worker: int, update: Update, push: Pushed, time: float) -> int | None:
        """Give an update to the algorithm; returns its delay, None if it was dropped as too late."""
        return self.half.push(worker, update, push.base_version, loss=push.loss, time=time)

    def _advanced(self, before: int) -> None:
        """Do what is due when the version may have changed."""
        version = self.half.version
        if version == before:
            return
        self._unblock()
        if version % self._evaluate_every == 0 or self.finished:
            self._observer.checkpoint()
        if self._broadcasts and not self.finished:
            self._asking = dict.fromkeys(sorted(self._workers))

    def _unblock(self) -> None:
        self._asking = self._blocked | self._asking
        self._blocked = {}

    def due(self, has_room: Callable[[int], bool]) -> Iterator[int]:
        """Workers that are to be sent parameters now; ``answer`` says what, before the next one.

        Args:
            has_room: whether what a worker was sent before has left; otherwise it has to wait.
        """
        if not self._begun or self.finished:
            return
        for worker in list(self._asking):
            # Sending to one may show that another is gone.
            if worker not in self._asking or not has_room(worker):
                continue
            del self._asking[worker]
            if self.half.pull(worker) is None:
                self._blocked[worker] = None  # until the version changes, or somebody leaves
            else:
                yield worker

    def answer(self, worker: int) -> "Answer":
        """What a worker that is due is sent."""
        vector = self.half.outgoing(worker)
        # What this worker was sent last it has by now, or will have before it reads this.
        changes = self.half.changed_since(vector, self._workers[worker])
        encoding, body = self._exact.encode(changes)
        self._workers[worker] = self.half.version
        return Answer(self.half.version, vector, encoding, body)


def as_loss(loss: float) -> float:
    """A loss as it is on the wire, a float32."""
    return float(np.float32(loss))

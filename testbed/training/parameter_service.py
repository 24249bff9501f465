"""What a parameter server decides: no socket, no clock, no thread.

The server's loop, the virtual clock and the simulator all drive this one object: they tell it who asked
and who pushed, in the order in which that happened by their clock, and ask it who is to be sent
parameters now, and what.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from testbed.algorithms.interface import ServerHalf
from testbed.checkpoints.stateful import Stateful
from testbed.encoding_choice import EncodingChoice
from testbed.telemetry.records import UpdateRow
from testbed.training.settings import Settings
from testbed.training.silence import Silence
from testbed.updates import FloatVector, Layout, Update
from testbed.wire.encodings import Codec


class Observer(Protocol):
    """Whoever writes down what a service did."""

    def row(self, row: UpdateRow, version: int) -> None:
        """A push was taken in, which led to this version."""

    def checkpoint(self) -> None:
        """The version that there is now is to be evaluated."""


class ServerObserver(Observer, Protocol):
    """Whoever writes down what a parameter server's service did.

    Times are the run's; ``version`` is the one that there is at that moment.
    """

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        """A worker has been silent for so many seconds, and is left out from now on."""

    def welcomed(self, worker: int, time: float, version: int) -> None:
        """Something came of a suspected worker, which takes part again."""


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

    A worker that has been silent for too long is *suspected*: the half forgets it, nobody waits for it
    and it is sent nothing. What it sends after all is counted and dropped, and with that it is
    *welcomed*: it takes part again, from the newest parameters.

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
        self, half: ServerHalf, layout: Layout, settings: Settings, observer: ServerObserver
    ) -> None:
        self.half = half
        self.payload_bytes = 0
        self.message_bytes = 0
        self._updates = settings.training.updates
        self._evaluate_every = settings.training.evaluate_every
        self._observer = observer
        self._exact = Codec(EncodingChoice(), layout.sizes)
        if settings.training.pulls == "changed":
            half.track_changes()
        self._broadcasts = half.protocol != "pull"
        self._workers: dict[int, int | None] = {}
        self._bytes: dict[int, int] = {}
        self._asking: dict[int, None] = {}
        self._blocked: dict[int, None] = {}
        self._suspected: set[int] = set()
        self._silence = Silence(settings.timing.suspect_after)
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

    def join(self, worker: int, time: float = 0.0) -> None:
        """A worker is there; in the order in which they come."""
        self._workers[worker] = None
        self._bytes[worker] = 0
        self.half.joined(worker)
        if self._begun:
            self._expect(worker, time)

    def leave(self, worker: int) -> None:
        """A worker is there no more."""
        if worker not in self._workers:
            return
        del self._workers[worker]
        self._suspected.discard(worker)
        self._silence.was_in_time(worker)
        self._forget(worker)

    def suspect(self, worker: int, time: float) -> None:
        """A worker has been silent for too long."""
        silent = self._silence.lasts(worker, time)
        self._observer.suspected(worker, silent, time, self.half.version)
        self._suspected.add(worker)
        self._forget(worker)

    def _forget(self, worker: int) -> None:
        """Nobody counts on a worker any more."""
        before = self.half.version
        self._silence.ends(worker)
        self._asking.pop(worker, None)
        self._blocked.pop(worker, None)
        if self.finished:
            return  # there will be no other update, whoever goes
        self.half.forget(worker)
        # Who waited for this one may go on.
        self._unblock()
        self._advanced(before)

    def _welcome(self, worker: int, time: float) -> None:
        """Something came of a suspected worker."""
        self._suspected.discard(worker)
        self._silence.was_slow(worker)
        self._observer.welcomed(worker, time, self.half.version)
        self.half.joined(worker)

    def _expect(self, worker: int, time: float) -> None:
        """A worker takes part from now on: it is sent parameters, or it is its turn to ask for them."""
        if self._broadcasts:
            self._asking[worker] = None
        elif not self.is_asking(worker):
            self._silence.begins(worker, time)

    def is_suspected(self, worker: int) -> bool:
        """Whether it has been silent for too long, and still is."""
        return worker in self._suspected

    def deadline(self, worker: int) -> float | None:
        """When a worker will have been silent for too long; None while it need not say anything."""
        return self._silence.deadline(worker)

    def overdue(self, now: float) -> list[int]:
        """Who is to be suspected now."""
        return [] if self.finished else self._silence.overdue(now)

    def begin(self) -> None:
        """Training begins: version 0 is evaluated and, if that is the protocol, sent to all."""
        self._begun = True
        self._observer.checkpoint()
        for worker in sorted(self._workers):
            self._expect(worker, 0.0)

    def go_on(self, payload_bytes: int, message_bytes: int) -> None:
        """Take over from another one, whose half this one has, and none of whose workers is there yet.

        Args:
            payload_bytes, message_bytes: what that one had counted.
        """
        self.payload_bytes, self.message_bytes = payload_bytes, message_bytes

    def begin_again(self, time: float) -> None:
        """Training goes on with the workers that are there."""
        self._begun = True
        for worker in sorted(self._workers):
            self._expect(worker, time)

    def count(self, worker: int, size: int) -> None:
        """A message of this many bytes was taken in."""
        self.message_bytes += size
        self._bytes[worker] += size

    def asked(self, worker: int, time: float = 0.0) -> None:
        """A worker asks for parameters."""
        self._silence.ends(worker)
        if worker in self._suspected:
            self._welcome(worker, time)
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
        again = worker in self._suspected
        if again or push.update is None:
            if push.base_version > before:
                raise ValueError(f"base version {push.base_version} is ahead of {before}")
            if not again:
                half.finished(worker, push.base_version, time=time)
            delay = None
        else:
            delay = self._apply(worker, push.update, push, time)
        self._observer.row(
            UpdateRow(
                iteration=before + (delay is not None),
                worker=worker,
                base_version=push.base_version,
                staleness=before - push.base_version if delay is None else delay,
                payload_bytes=push.payload_bytes,
                message_bytes=self._bytes[worker],
                loss=push.loss,
                time=time,
                host_time=host_time,
                applied=delay is not None,
            ),
            half.version,
        )
        self._bytes[worker] = 0
        self._heard(worker, push.base_version, time)
        self._advanced(before)

    def _heard(self, worker: int, base_version: int, time: float) -> None:
        """A worker has pushed or reported: what is expected of it next."""
        self._silence.ends(worker)
        has_more = self._workers[worker] != base_version
        if worker not in self._suspected:
            self._silence.was_in_time(worker)
        else:
            self._welcome(worker, time)
            # One that was sent the newest before, and has yet to answer it, is not sent it again.
            if not (has_more and self._workers[worker] == self.half.version):
                self._expect(worker, time)
                return
        # Who asks does so now; who was sent a newer version meanwhile has that to compute at.
        if not self._broadcasts or has_more:
            self._silence.begins(worker, time)

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
            self._asking = dict.fromkeys(sorted(self._workers.keys() - self._suspected))

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

    def sent(self, worker: int, time: float) -> None:
        """A worker was sent what it was due."""
        if self.half.protocol == "push-and-interrupt":
            self._silence.ends(worker)  # it drops what it was to send, and begins anew
        self._silence.begins(worker, time)

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

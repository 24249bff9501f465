"""The decisions of a parameter server: no socket, no clock, no thread."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from testbed.algorithms.diagnostic import diagnosed
from testbed.algorithms.server_half import ServerHalf, UnexpectedMessageError
from testbed.checkpoints.stateful import Stateful
from testbed.encoding_choice import EncodingChoice
from testbed.messages.reports import Suspected, Welcomed
from testbed.telemetry.update_rows import UpdateRow
from testbed.training import computation
from testbed.training.expected_pushes import ExpectedPushes
from testbed.training.service_entries import Diagnosed, Entry, EvaluationPoint, UpdateEntry
from testbed.training.settings import Settings
from testbed.training.silence import Silence
from testbed.training.staleness_bound import StalenessBound
from testbed.training.worker_states import WorkerEvent, WorkerState, WorkerStates
from testbed.updates import FloatVector, Layout, Update
from testbed.wire.encodings import Codec


@dataclass(frozen=True, slots=True)
class Pushed:
    """A worker's push or report.

    Attributes:
        base_version: the version that it was computed at.
        update: None if the worker only reports that it has finished.
        payload_bytes: bytes of the encoded update.
        loss: the loss of the mini-batch; NaN in a report.
        count: of an aggregator's push, the number of updates in the sum; 0 in any other.
    """

    base_version: int
    update: Update | None
    payload_bytes: int
    loss: float
    count: int = 0


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """The parameters that a worker is sent.

    Attributes:
        vector: what the worker has when it has read this, float32, (|Θ|,); used up before the next
            answer.
        encoding, body: as in a message; the body shares the vector's memory, so that what is not sent
            immediately has to be copied.
        dealt: the number of the mini-batch that the worker computes on, in the run's stream of them; 0
            where there is none.
    """

    version: int
    vector: FloatVector
    encoding: int
    body: Sequence[bytes | memoryview]
    dealt: int = 0


Apply: TypeAlias = Callable[[ServerHalf, int, Pushed, float], int | None]
"""Gives a worker's update to the algorithm; returns its delay, or None if it came too late."""


def apply_update(half: ServerHalf, worker: int, push: Pushed, time: float) -> int | None:
    """Give a worker's update to the algorithm, without measuring how long that takes."""
    update = push.update
    assert update is not None
    if half.fit is not None:
        update = half.fit(update, half.version)
    if push.count:
        return half.push_sum(
            worker, update, push.base_version, push.count, loss=push.loss, time=time
        )
    return half.push(worker, update, push.base_version, loss=push.loss, time=time)


class ParameterService(Stateful):
    """Decides for the server of one run.

    A worker that has been silent for too long is *suspected*: the half forgets it, no other worker
    waits for it and it is sent nothing. What it sends after all is counted and dropped, and with that
    it is *welcomed*: it takes part again, from the newest parameters.

    Attributes:
        parameters: how many it holds, shared buffers included.
        local_payload_bytes, local_message_bytes: those of the worker on the server's own machine, which
            are among them and cross no link.
        dealt: the mini-batches that were dealt, of the run's stream of them.
    """

    makes_updates: ClassVar[bool] = True
    """True if its updates are those of the run, which are recorded and evaluated."""
    not_saved = frozenset(
        {
            "half",
            "index",
            "parameters",
            "_local",
            "_apply",
            "_diagnostics",
            "_updates",
            "_evaluate_every",
            "_exact",
            "_broadcasts",
            "_workers",
            "_silent_aggregators",
            "_deals",
        }
    )

    def __init__(
        self,
        half: ServerHalf,
        layout: Layout,
        settings: Settings,
        apply: Apply = apply_update,
        *,
        index: int = 0,
    ) -> None:
        self.index = index
        self.half = half
        self.parameters = layout.total
        self._apply = apply
        self.payload_bytes = self.local_payload_bytes = 0
        self.message_bytes = self.local_message_bytes = 0
        self._local = index if index < settings.network.co_located else None
        self._diagnostics = computation.diagnostics(settings)
        self._updates = settings.training.updates
        self._evaluate_every = settings.spec.evaluation.every
        self._exact = Codec(EncodingChoice(), layout.sizes)
        if settings.pulls == "changed":
            half.track_changes()
        self._broadcasts = half.protocol != "pull"
        self._deals = settings.spec.partition.kind == "stream"
        self.dealt = 0
        self._states = WorkerStates()
        self._expected = ExpectedPushes(
            computation.legs(settings, 0),
            asks=not self._broadcasts,
            overlaps=computation.overlaps(settings),
        )
        # By worker: the version that it was sent last, and the bytes it has sent since its last row.
        self._sent: dict[int, int | None] = {}
        self._bytes: dict[int, int] = {}
        self._workers = settings.workers
        # By aggregator that faults may silence, the levels of devices below it.
        self._silent_aggregators = {
            one: levels
            for one, levels in settings.levels_below(index).items()
            if settings.faults.may_silence(one)
        }
        self._silence = Silence(settings.timing.suspect_after)
        # A worker needs every server's slice, so it is enough that the first server holds its own back.
        # If each did by counts of its own, two workers might wait for each other at two servers.
        bound = getattr(settings.algorithm, "staleness_bound", None)
        self._bound = StalenessBound(None if index else bound)
        self._begun = False

    @property
    def finished(self) -> bool:
        return self.half.version >= self._updates

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def workers(self) -> int:
        return len(self._states)

    @property
    def present(self) -> list[int]:
        """The numbers of the workers that are there, the lowest first."""
        return list(self._states)

    def join(self, worker: int, time: float = 0.0) -> None:
        """Add a worker; workers are added in the order in which they come."""
        self._states.handle(WorkerEvent.JOIN, worker)
        self._expected.joined(worker)
        self._sent[worker] = None
        self._bytes[worker] = 0
        if (levels := self._silent_aggregators.get(worker)) is not None:
            # It waits for its own devices, and suspects them, before it has anything to send.
            self._silence.bears(worker, 1 + levels)
        self._bound.joined(worker)
        self.half.joined(worker)
        if self._begun:
            self._expect(worker, time)

    def leave(self, worker: int, *, over: bool = False) -> list[Entry]:
        """Go on without a worker that is gone.

        Args:
            over: True if the run is: no update follows, though others may have waited for this worker.
        """
        if self._states.handle(WorkerEvent.LEAVE, worker) is WorkerState.GONE:
            return []
        del self._sent[worker]
        self._expected.gone(worker)
        self._silence.was_in_time(worker)
        return self._forget(worker, over=over)

    def suspect(self, worker: int, time: float) -> list[Entry]:
        self._states.handle(WorkerEvent.SUSPECT, worker)
        self._expected.suspected(worker)
        silent = self._silence.lasts(worker, time)
        return [Suspected(worker, silent, time, self.half.version), *self._forget(worker)]

    def _forget(self, worker: int, *, over: bool = False) -> list[Entry]:
        """Go on without a worker: nothing waits for it any more."""
        before = self.half.version
        self._silence.ends(worker)
        if over or self.finished:
            return []  # there will be no other update
        self._bound.forget(worker)
        self.half.forget(worker)
        self._states.release()  # workers that waited for this one may go on
        return self._advanced(before)

    def _welcome(self, worker: int, time: float) -> list[Entry]:
        """Take back a suspected worker, which has sent something."""
        self._silence.was_slow(worker)
        welcomed = Welcomed(worker, time, self.half.version)
        self._bound.joined(worker)
        self.half.joined(worker)
        return [welcomed]

    def _expect(self, worker: int, time: float) -> None:
        """Send parameters to a worker that takes part from now on, or expect it to ask for them."""
        if self._broadcasts:
            self._states.handle(WorkerEvent.OFFER, worker)
        elif not self.is_asking(worker):
            self._is_to_send(worker, time)

    def _is_to_send(self, worker: int, time: float) -> None:
        """Start a worker's turn; an aggregator that no fault silences always answers."""
        if worker < self._workers or worker in self._silent_aggregators:
            self._silence.begins(worker, time)

    def is_suspected(self, worker: int) -> bool:
        """Return True if the worker has been silent for too long, and still is."""
        return self._states[worker] is WorkerState.SUSPECTED

    def deadline(self, worker: int) -> float | None:
        """Return when the worker will have been silent for too long; None if it need not send."""
        return self._silence.deadline(worker)

    def expire(self) -> list[Entry]:
        """End the half's time limit, which may lead to an update."""
        before = self.half.version
        self.half.expire()
        return self._advanced(before)

    def begin(self) -> list[Entry]:
        """Start training: version 0 is evaluated and, if that is the protocol, sent to all workers.

        Workers that have asked before, which all did at the run's time 0, are sent it by number.
        """
        self._begun = True
        self._states.line_up()
        for worker in self._states:
            self._expect(worker, 0.0)
        return self._evaluation()

    def go_on(
        self, payload_bytes: int, message_bytes: int, local_payload: int = 0, local_message: int = 0
    ) -> None:
        """Take over from an earlier service, whose half this one has, before any worker is there."""
        self.payload_bytes, self.message_bytes = payload_bytes, message_bytes
        self.local_payload_bytes, self.local_message_bytes = local_payload, local_message

    def begin_again(self, time: float) -> None:
        """Go on with training, with the workers that are there."""
        self._begun = True
        for worker in self._states:
            self._expect(worker, time)

    def count(self, worker: int, size: int) -> None:
        self.count_late(worker, size)
        self._bytes[worker] += size

    def count_late(self, worker: int, size: int, payload: int = 0) -> None:
        """Count a message that belongs to no row of an update, and the payload in it, in bytes."""
        self.message_bytes += size
        self.payload_bytes += payload
        if worker == self._local:
            self.local_message_bytes += size
            self.local_payload_bytes += payload

    @property
    def ledger(self) -> tuple[int, int, int, int]:
        """Payload and message bytes so far, and those of them that crossed no link."""
        local = self.local_payload_bytes, self.local_message_bytes
        return self.payload_bytes, self.message_bytes, *local

    def asked(self, worker: int, time: float = 0.0) -> list[Entry]:
        """Record that a worker asks for parameters.

        Raises:
            WrongEventError: it has asked already, or is gone.
        """
        before = self._states.handle(WorkerEvent.ASK, worker)
        self._silence.ends(worker)
        return self._welcome(worker, time) if before is WorkerState.SUSPECTED else []

    @property
    def stalled(self) -> bool:
        """True if all workers wait for parameters that they may not have: none of them will push."""
        return self._begun and self._states.all_blocked

    def is_asking(self, worker: int) -> bool:
        """Return True if the worker has asked for parameters and was not sent any yet."""
        return self._states[worker] in (WorkerState.ASKING, WorkerState.BLOCKED)

    def pushed(self, worker: int, push: Pushed, time: float, host_time: float) -> list[Entry]:
        """Take a push in, or a late worker's report.

        Args:
            time: when it arrived, in seconds since training began by the run's clock.
            host_time: the same by the host's clock.

        Raises:
            UnexpectedMessageError: the worker cannot push that (``ExpectedPushes``), or is gone.
        """
        if push.count and worker < self._workers:
            raise UnexpectedMessageError(
                f"worker {worker} pushed a sum of {push.count} updates, as aggregators do"
            )
        half, before = self.half, self.half.version
        self.count_late(worker, 0, push.payload_bytes)
        if self.finished:
            return []
        again = self._states.handle(WorkerEvent.PUSH, worker) is WorkerState.SUSPECTED
        first = self._expected.pushed(worker, push.base_version, reported=push.update is None)
        if again or not first or push.update is None:
            if not again and first:
                half.finished(worker, push.base_version, time=time)
            delay = None
        else:
            delay = self._apply(half, worker, push, time)
            self._bound.pushed(worker)
        row = UpdateRow(
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
            server=self.index,
        )
        found: list[Entry] = [UpdateEntry(row, half.version)] if self.makes_updates else []
        self._bytes[worker] = 0
        found += self._heard(worker, push.base_version, time, again=again)
        if push.update is None and worker >= self._workers:
            self._silence.ends(worker)  # it has no devices, and asks when one is there
        found += self._advanced(before)
        return found

    def _heard(self, worker: int, base_version: int, time: float, *, again: bool) -> list[Entry]:
        """Record that a worker has pushed or reported; decide what is expected of it next.

        Patience with an aggregator only grows: how long it takes goes by its devices, and a sum that is
        dropped is the work of all of them.

        Args:
            again: True if it was suspected.
        """
        self._silence.ends(worker)
        has_more = self._sent[worker] != base_version
        found: list[Entry] = []
        if not again:
            if worker < self._workers:
                self._silence.was_in_time(worker)
        else:
            found = self._welcome(worker, time)
            # A worker that was sent the newest version and has yet to push for it is not sent it again.
            if not (has_more and self._sent[worker] == self.half.version):
                self._expect(worker, time)
                return found
        # A worker that asks does so now, or has before; one that was sent a newer version has that to
        # compute at.
        if has_more if self._broadcasts else not self.is_asking(worker):
            self._is_to_send(worker, time)
        return found

    def _advanced(self, before: int) -> list[Entry]:
        version = self.half.version
        if version == before:
            return []
        found: list[Entry] = []
        if self._diagnostics and self.makes_updates:
            found.append(Diagnosed(diagnosed(self.half.diagnose(), self._diagnostics), version))
        self._states.release()
        if version % self._evaluate_every == 0 or self.finished:
            found += self._evaluation()
        if self._broadcasts and not self.finished:
            self._states.offer()
        return found

    def _evaluation(self) -> list[Entry]:
        """Have the current version evaluated, if it is one of the run's."""
        if not self.makes_updates:
            return []
        return [EvaluationPoint(self.half.version, self.ledger, self.finished)]

    def due(self, has_room: Callable[[int], bool], time: float) -> Iterator[int]:
        """Yield the workers to be sent parameters now; call ``answer`` for each before taking the next.

        Args:
            has_room: returns True if what a worker was sent before has left; otherwise it has to wait.
            time: now, in seconds since training began by the run's clock.
        """
        if not self._begun or self.finished:
            return
        for worker in self._states.within(WorkerState.ASKING):
            # Sending to one worker may show that another is gone.
            if self._states[worker] is not WorkerState.ASKING or not has_room(worker):
                continue
            if not self._bound.allows(worker) or self.half.pull(worker, time=time) is None:
                self._states.handle(WorkerEvent.BLOCK, worker)
            else:
                self._states.handle(WorkerEvent.SEND, worker)
                yield worker

    def sent(self, worker: int, time: float) -> None:
        """Start the turn of a worker that was sent what it was due."""
        if self.half.protocol == "push-and-interrupt":
            self._silence.ends(worker)  # it drops what it was to send, and begins anew
        self._is_to_send(worker, time)

    def answer(self, worker: int) -> PullAnswer:
        vector = self.half.outgoing(worker)
        # The worker has what it was sent last, or will have it before it reads this.
        changes = self.half.changed_since(vector, self.answered(worker))
        encoding, body = self._exact.encode(changes)
        return PullAnswer(self.half.version, vector, encoding, body, self.deal())

    def deal(self) -> int:
        """Return the number of the mini-batch of the next answer; 0 where none are dealt."""
        dealt = self.dealt
        self.dealt += self._deals
        return dealt

    def answered(self, worker: int) -> int | None:
        """Record that a worker is sent the present version; return the one that it was sent before."""
        self._expected.sent(worker, self.half.version)
        before, self._sent[worker] = self._sent[worker], self.half.version
        return before


def as_loss(loss: float) -> float:
    """Return a loss as it is on the wire, a float32."""
    return float(np.float32(loss))

"""The state of a running run, read from what it writes anyway.

Nothing is asked of the run. Under the wall clock and in an emulation rows are written as they happen; a
simulation writes its own at each evaluation, or every 1,500 updates.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.device_names import COORDINATOR_NAME, EVALUATOR_NAME, is_aggregator, is_server
from testbed.results.reading.journals import NoRunError, whole
from testbed.results.reading.quality import Quality
from testbed.results.reading.recorded_faults import CRASHES
from testbed.results.reading.recorded_run import RecordedRun
from testbed.telemetry.event_kinds import EventKind
from testbed.untrusted_text import LARGEST_TABLE, read_file

WINDOW = 5.0
"""Seconds of the host's clock over which rates are taken, at least."""
_PHASES: dict[str, str] = {
    EventKind.NODES_MADE: "linking",
    EventKind.NETWORK_BUILT: "connecting",
    EventKind.TRAINING_BEGAN: "training",
    EventKind.PROGRAMS_BEGAN: "running",
}
"""The phase of a run from an event on."""
_MAKING = "making nodes"
_SMALL_FILES = ("events.jsonl", "faults.jsonl", "curve.csv")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a run.

    Attributes:
        phase: what it does, or how it ended.
        ended: True if it has ended.
        updates: updates applied so far; ``all_updates`` those of the whole run, None if unknown.
        update_rate: updates per second of the host's clock; None before the first.
        ingress_rate: message bytes that enter the server per second of the host's clock; or None.
        accuracy: that of the last evaluation, in percent; None before the first.
        quality: what says how good the run's models are, and ``value`` its last value; None before
            the first evaluation.
        alive: the workers or peers that are neither frozen nor dead.
        faulted: the devices that a fault strikes now.
    """

    run: RecordedRun
    phase: str
    ended: bool
    updates: int
    all_updates: int | None
    update_rate: float | None
    ingress_rate: float | None
    accuracy: float | None
    quality: Quality
    value: float | None
    alive: int
    faulted: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """The updates and message bytes so far, at a second of the host's clock since training began."""

    host_time: float
    updates: int
    message_bytes: int


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the small files of a run say."""

    phase: str
    accuracy: float | None
    quality: Quality
    value: float | None
    crashed: int
    faulted: int
    round: int = 0


class LiveStatus:
    """Follows one run; reads only what was added since the last look."""

    def __init__(self, run: RecordedRun) -> None:
        """Follow a run; raise NoRunError if what it has written cannot be read."""
        self._run = run
        self._updates = run.directory / "updates.arrows"
        self._journal = _GrowingJournal(self._updates)
        self._recent: deque[_Moment] = deque([_Moment(0.0, 0, 0)])
        self._all_updates = _all_updates(run)
        self._sizes: list[int] = []
        self._facts = _Facts(_MAKING, None, run.quality, None, 0, 0)

    def look(self, *, running: bool) -> Status:
        """Return the run's present state.

        Args:
            running: False if the run's process has ended or gone on to another run.

        Raises:
            NoRunError: what it writes cannot be read.
        """
        sizes = [_size(self._run.directory / name) for name in _SMALL_FILES]
        if sizes != self._sizes:
            if os.path.lexists(self._run.directory / "manifest.json"):  # else it is being removed
                self._facts = _facts(self._run.directory)
            self._sizes = sizes
        facts = self._facts
        with whole(self._updates):
            self._read_updates()
        last = self._recent[-1]
        if self._run.manifest.programs:  # their rounds are those of their measurements
            last = replace(last, updates=facts.round)
        status = Status(
            run=self._run,
            phase=self._phase(),
            ended=False,
            updates=last.updates,
            all_updates=self._all_updates,
            update_rate=None,
            ingress_rate=None,
            accuracy=facts.accuracy,
            quality=facts.quality,
            value=facts.value,
            alive=self._run.manifest.workers - facts.crashed,
            faulted=facts.faulted,
        )
        # The rows of one that has ended meanwhile may be in another file, which is not followed.
        if not running or self._has_ended():
            return replace(status, ended=True, **self._end())
        update_rate, ingress_rate = self._rates()
        return replace(status, update_rate=update_rate, ingress_rate=ingress_rate)

    def _has_ended(self) -> bool:
        try:
            return RecordedRun.load(self._run.directory).manifest.ended != "running"
        except NoRunError:  # removed, or being removed
            return True

    def _end(self) -> dict[str, Any]:
        """Return how the run has ended, and after how many updates."""
        try:
            run = RecordedRun.load(self._run.directory)
            return {"phase": run.ended, "updates": run.summary.updates}
        except NoRunError:  # removed, or being removed
            return {"phase": "removed"}

    def _phase(self) -> str:
        updates = self._recent[-1].updates
        if self._all_updates and updates >= self._all_updates:
            return "finishing"
        if self._run.manifest.engine == "simulation":
            return "training" if updates or self._facts.accuracy is not None else "loading"
        return self._facts.phase

    def _read_updates(self) -> None:
        if self._journal.changed():
            self._recent = deque([_Moment(0.0, 0, 0)])
        for batch in self._journal.batches():
            if batch.num_rows:
                before = self._recent[-1]
                iterations, times, sizes = (
                    batch.column(name).to_numpy()
                    for name in ("iteration", "host_time", "message_bytes")
                )
                received = before.message_bytes + int(sizes.sum())
                self._recent.append(_Moment(float(times[-1]), int(iterations.max()), received))
        # One moment before the window stays, and the last but one in any case: its batch may be long.
        newest = self._recent[-1].host_time
        while len(self._recent) > 2 and self._recent[1].host_time < newest - WINDOW:
            self._recent.popleft()

    def _rates(self) -> tuple[float, float] | tuple[None, None]:
        """Return updates and message bytes per second; they fall while nothing is written."""
        first, last = self._recent[0], self._recent[-1]
        if first is last:
            return None, None
        try:
            silent = max(0.0, time.time() - self._updates.lstat().st_mtime)
        except OSError:
            silent = 0.0
        seconds = max(last.host_time - first.host_time + silent, 1e-9)
        updates, received = last.updates - first.updates, last.message_bytes - first.message_bytes
        return max(0, updates) / seconds, received / seconds


class _GrowingJournal:
    """The complete batches of an Arrow stream that another process appends to."""

    def __init__(self, path: Path) -> None:
        """Follow the ``.arrows`` file at a path, which may not be there yet."""
        self._path = path
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._schema: Any = None

    def changed(self) -> bool:
        """Return True if the file is another one now, of which ``batches`` yields all rows.

        A run replaces it when its server goes back to a checkpoint.
        """
        try:
            status = self._path.lstat()
        except OSError:
            return False
        found = (status.st_dev, status.st_ino)
        if found == self._file:
            return False
        self._file, self._offset, self._schema = found, 0, None
        return True

    def batches(self) -> Iterator[Any]:
        """Yield the ``pyarrow.RecordBatch`` objects since the last call.

        Raises:
            NoRunError: it is no file that a run writes.
        """
        import pyarrow as pa

        try:
            with whole(self._path):
                source = pa.BufferReader(read_file(self._path, LARGEST_TABLE, self._offset))
        except FileNotFoundError:  # the run has ended: its rows are in a Parquet file now
            return
        start = self._offset
        while True:
            try:
                message = pa.ipc.read_message(source)
                if self._schema is None:
                    self._schema = pa.ipc.read_schema(message)
                    batch = None
                else:
                    batch = pa.ipc.read_record_batch(message, self._schema)
                    batch.validate(full=True)
            except (EOFError, pa.ArrowException, OSError):  # the rest is not written yet
                return
            self._offset = start + source.tell()
            if batch is not None:
                yield batch


def _all_updates(run: RecordedRun) -> int | None:
    try:
        return int(run.spec["training"]["updates"])
    except (LookupError, TypeError, ValueError, OverflowError):
        return None


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def _facts(directory: Path) -> _Facts:
    phase, crashed, faulted = _MAKING, set[str](), set[str]()
    run = RecordedRun.load(directory)
    for event in run.events:
        phase = _PHASES.get(event.kind or "", phase)
        if event.kind == EventKind.DIED and event.device:
            crashed.add(event.device)
    for one in run.faults:
        if one.ended is None:
            faulted.add(one.device)
            if one.kind in CRASHES:
                crashed.add(one.device)
    quality, evaluations = run.quality, run.evaluations
    accuracy, value = (
        float(found[-1]) if len(found) else None
        for found in (evaluations.accuracy, evaluations.of(quality))
    )
    others = {EVALUATOR_NAME, COORDINATOR_NAME}
    workers = [one for one in crashed - others if not (is_server(one) or is_aggregator(one))]
    rounds = int(evaluations.iteration[-1]) if len(evaluations) else 0
    return _Facts(phase, accuracy, quality, value, len(workers), len(faulted), rounds)

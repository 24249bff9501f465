"""The state of one run as plain values, which a live run and a replayed one fill in alike.

None, or a missing key, means that the value is not known: it is then not exported, and never as 0.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.metrics.workers import PerClass, Workers
from testbed.results.reading.quality import Quality
from testbed.run_endings import STATES as ENDS
from testbed.run_endings import is_complete
from testbed.runs.class_records import DeviceClasses
from testbed.telemetry.entries import Diagnoses, EvaluationMade, RunEntry, Updates

LAYERS = ("payload", "message", "wire")
PHASES = ("loading", "devices", "training", "finishing", *ENDS)
BUCKETS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Upper bounds of the staleness histogram's buckets, in updates; one more bucket has no bound."""
ACCURACIES = (0.8, 0.9, 0.95, 0.97)
"""Accuracies for which the ingress needed to reach them is exported."""
RATE_WINDOW = 5.0
"""Seconds of the host's clock over which the present rate is measured."""

Bytes = dict[str, int]
"""Bytes by layer."""


@dataclass(slots=True)
class Staleness:
    """A histogram of staleness.

    Attributes:
        counts: updates in each bucket alone (not cumulative), shape (12,).
        sum: of all values.
    """

    counts: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(BUCKETS) + 1, np.int64)
    )
    sum: int = 0

    def add(self, staleness: npt.NDArray[np.int64]) -> None:
        """Count some values."""
        places = np.searchsorted(BUCKETS, staleness)
        self.counts += np.bincount(places, minlength=len(self.counts))
        self.sum += int(staleness.sum())


@dataclass(slots=True)
class Evaluation:
    """The last evaluation: accuracy from 0 to 1, and the ingress when its version was reached.

    The accuracy is None where there is none, or where the run has a measure of its own; the loss where
    programs tell of none.
    """

    updates: int
    accuracy: float | None
    loss: float | None
    ingress: Bytes


@dataclass(slots=True)
class Uplinks:
    """The uplinks of each device class; values that need a queueing discipline are None without one.

    Attributes:
        transmitted: bytes so far.
        dropped: packets so far.
        capacity: bytes per second.
        utilisation: share of the capacity used over the last sample period, 0 to 1.
        backlog: bytes that wait.
    """

    transmitted: PerClass
    dropped: PerClass
    capacity: PerClass | None = None
    utilisation: PerClass | None = None
    backlog: PerClass | None = None


@dataclass(slots=True)
class RunState:
    """The state of one run.

    Attributes:
        run: experiment and execution.
        algorithm: the run's label.
        info: its other properties, for labels.
        target: updates that it lasts; None of programs.
        classes: of its devices.
        worker_names: by number.
        served: False among peers, whose rows of updates say what they send, and not what arrives.
        updates: the version, to which each update has led, whether of one push or of several.
        dropped: pushes that were not applied.
        rate: updates per second of the host's clock.
        class_updates: applied pushes of each class.
        worker_updates, worker_message_bytes: applied pushes and bytes of each worker.
        by_worker: False if these three are not known.
        ingress, egress: bytes by layer.
        packets: frames into the server; ``acknowledgements``: pure ACKs among them.
        capture: packets captured and dropped.
        due: evaluations that the evaluator still has to do.
        devices: number of devices of each class (shape (classes,)) in each state (by name).
        workers: what has become of the workers: struck, dead, suspected.
        queue, apply: total seconds, and the number of pushes.
        memory, processor: bytes and seconds by role.
        device_processor: seconds by device, since the run was made.
        training_seconds: of the host's clock; ``virtual_seconds``: of the virtual one.
        measure, measured: the run's own measure, if it has one, and its last value.
        declared: the names of the algorithm's own numbers.
        diagnostics: these numbers at the last update, by their names.
        programs: how many instances of each program of a user's run.
        reached: ingress when each of ``ACCURACIES`` was first reached.
    """

    run: str
    algorithm: str
    info: Mapping[str, str]
    target: int | None
    classes: DeviceClasses
    worker_names: tuple[str, ...]
    served: bool = True
    declared: tuple[str, ...] = ()
    phase: str = "loading"
    updates: int = 0
    dropped: int = 0
    rate: float | None = None
    staleness: Staleness = field(default_factory=Staleness)
    ingress: Bytes = field(default_factory=lambda: dict.fromkeys(LAYERS, 0))
    egress: Bytes = field(default_factory=dict)
    packets: int | None = None
    acknowledgements: int | None = None
    capture: tuple[int, int] | None = None
    evaluation: Evaluation | None = None
    measure: Quality | None = None
    measured: float | None = None
    due: int | None = None
    devices: dict[str, PerClass] = field(default_factory=dict)
    uplinks: Uplinks | None = None
    queue: tuple[float, int] | None = None
    apply: tuple[float, int] | None = None
    memory: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    device_processor: dict[str, float] = field(default_factory=dict)
    training_seconds: float | None = None
    virtual_seconds: float | None = None
    diagnostics: dict[str, float] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)
    reached: dict[float, Bytes] = field(default_factory=dict)
    workers: Workers = field(init=False)
    class_updates: PerClass = field(init=False)
    worker_updates: npt.NDArray[np.int64] = field(init=False)
    worker_message_bytes: npt.NDArray[np.int64] = field(init=False)
    by_worker: bool = True
    _pushed: Bytes = field(default_factory=lambda: {"payload": 0, "message": 0})
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        count = len(self.worker_names)
        self.workers = Workers(self.worker_names, self.classes)
        self.class_updates = np.zeros(len(self.classes.names), np.int64)
        self.worker_updates = np.zeros(count, np.int64)
        self.worker_message_bytes = np.zeros(count, np.int64)

    def take(self, entry: RunEntry) -> None:
        """Take an entry of the run's log."""
        match entry:
            case Updates(rows, version):
                self.updates = max(self.updates, version)  # a counter never goes back
                self._update(rows)
            case Diagnoses(values):
                self.diagnostics = dict(zip(self.declared, values[-1].tolist(), strict=True))
            case EvaluationMade(row):
                self._evaluate(row)
            case _:
                self.workers.take(entry)

    def end(self, ended: str, ledger: Mapping[str, float]) -> None:
        """Take how the run ended, and its ingress as ``raise_to_ledger`` takes it."""
        self.phase, self.rate = ended, 0.0
        self.due = 0 if is_complete(ended) else self.due
        self.raise_to_ledger(ledger)
        self.devices = self.workers.counts(ended=True)

    def _update(self, rows: npt.NDArray[Any]) -> None:
        """Count rows of ``telemetry.update_rows.UPDATE``; of several servers, the first's pushes."""
        if self.info.get("clock") == "virtual":
            self.virtual_seconds = float(rows["time"][-1])
        first = rows["server"] == 0
        done = rows[rows["applied"] & first]
        self.dropped += int(first.sum()) - len(done)
        self.staleness.add(done["staleness"])
        if self.served:
            for layer in self._pushed:
                self._pushed[layer] += int(rows[f"{layer}_bytes"].sum())
            self.raise_ingress(**self._pushed)
        count = len(self.worker_names)
        if (rows["worker"] >= count).any():
            # An aggregator's pushes are none of its workers', which are in no record.
            self.by_worker = False
            return
        self.class_updates += self.classes.count(done["worker"])
        self.worker_updates += np.bincount(done["worker"], minlength=count)
        sizes = np.bincount(rows["worker"], rows["message_bytes"], minlength=count)
        self.worker_message_bytes += sizes.astype(np.int64)

    def raise_ingress(self, **ingress: int) -> None:
        """Take the ingress by layer from one source; another may have reported more already."""
        for layer, size in ingress.items():
            self.ingress[layer] = max(self.ingress[layer], size)

    def raise_to_ledger(self, ledger: Mapping[str, float]) -> None:
        """Take the ingress of a ledger with a key such as ``wire_bytes`` for each layer."""
        self.raise_ingress(**_by_layer(ledger))

    def _evaluate(self, row: Mapping[str, Any]) -> None:
        """Take an evaluation, with ``iteration``, ``accuracy`` in percent, ``loss`` and bytes.

        Its ``measured`` is the value of the run's own measure, if it has one: the accuracy of such a
        run, that of a language model's next token, is none to compare runs by, and is left out.
        """
        ingress = _by_layer(row)
        self.raise_ingress(**ingress)
        accuracy = None if math.isnan(row["accuracy"]) else row["accuracy"] / 100
        if self.measure is not None:
            self.measured, accuracy = row["measured"], None
        of_programs = self.target is None
        loss = None if of_programs and math.isnan(row["loss"]) else row["loss"]
        self.evaluation = Evaluation(int(row["iteration"]), accuracy, loss, ingress)
        for wanted in ACCURACIES:
            if accuracy is not None and accuracy >= wanted:
                self.reached.setdefault(wanted, ingress)

    def measure_rate(self, now: float) -> None:
        """Measure the rate at a moment of the host's clock, from the present number of updates."""
        recent = self._recent
        recent.append((now, self.updates))
        while len(recent) > 2 and now - recent[1][0] >= RATE_WINDOW:
            recent.popleft()
        then, before = recent[0]
        if now > then:
            self.rate = (self.updates - before) / (now - then)


def _by_layer(row: Mapping[str, float | None]) -> Bytes:
    """Return the bytes by layer as far as they are known; of programs only those of the wire are."""
    sizes = {layer: row[f"{layer}_bytes"] for layer in LAYERS}
    return {layer: int(size) for layer, size in sizes.items() if size is not None}

"""One log, two readers: a run's metrics at its end are those of its replay, whatever happened in it."""

import itertools
import tempfile
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.load import dump
from testbed.faults.fault import Fault
from testbed.messages.reports import Suspected, Welcomed
from testbed.metrics.live import LiveRun
from testbed.metrics.replay import ReplayedRun
from testbed.metrics.state import RunState
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.outcome import RunOutcome, manifest
from testbed.telemetry import run_log
from testbed.telemetry.entries import (
    Diagnoses,
    EvaluationMade,
    FaultChanged,
    Noted,
    RunEntry,
    Updates,
)
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.run_log import RunLog
from testbed.telemetry.update_rows import UPDATE
from tests.metrics.running import planned

WORKERS = 5
CLASSES = [{"name": "fast", "share": "60%"}, {"name": "slow", "share": "40%"}]
PLAN = planned(
    WORKERS,
    engine="simulation",
    clock="virtual",
    compute={"distribution": "constant", "mean": "1s"},
    algorithms=["sync-sgd"],
    devices={"workers": WORKERS, "classes": CLASSES},
)
SPEC, MANIFEST = dump(PLAN.spec), manifest(PLAN)
# What only one of the two can know: the rate and times of the host, the run's own processes.
OF_ONE = {"run", "info", "rate", "processor", "memory", "virtual_seconds", "training_seconds"}

one_worker = st.integers(0, WORKERS - 1)
ACTIONS = st.one_of(
    st.tuples(
        st.just("push"), st.lists(st.tuples(one_worker, st.booleans()), min_size=1, max_size=6)
    ),
    st.tuples(st.just("evaluate"), st.floats(0, 100)),
    st.tuples(st.sampled_from(["freeze", "kill", "partition", "stop-network"]), one_worker),
    st.tuples(st.just("away"), one_worker),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["suspect", "welcome", "die"]), one_worker),
    st.just(("go back", None)),
)


class Happening:
    """A run in which things happen, a hundredth of a second apart."""

    def __init__(self) -> None:
        self.now = 0.0
        self.version = 0
        self.ledger = {"payload_bytes": 0, "message_bytes": 0, "wire_bytes": 0}
        self._active: list[tuple[Fault, int]] = []
        self._rules = itertools.count()

    def entries(self, what: str, about: Any) -> list[RunEntry]:
        self.now = round(self.now + 0.01, 2)
        entry: RunEntry
        match what:
            case "push":
                return self._push(about)
            case "evaluate":
                row = {"iteration": self.version, "time": self.now, "accuracy": about}
                entry = EvaluationMade(row | {"loss": 1.0, "measured": None} | self.ledger)
            case "suspect":
                entry = Suspected(about, 3.0, self.now, self.version)
            case "welcome":
                entry = Welcomed(about, self.now, self.version)
            case "die":
                entry = Noted("warning", "it died", f"worker-{about}", EventKind.DIED)
            case "go back":
                entry = Noted("info", "back", "server", EventKind.WENT_BACK)
            case _:
                return self._fault(what, about)
        return [entry]

    def _fault(self, what: str, about: int) -> list[RunEntry]:
        if what != "end":
            how: Any = "kill" if what == "away" else what
            away: Any = "left" if what == "away" else ""
            self._active.append((Fault(next(self._rules), how, 1.0, away=away), about))
            return [self._change(*self._active[-1], "begin")]
        if not self._active:
            return []
        return [self._change(*self._active.pop(about % len(self._active)), "end")]

    def _change(self, fault: Fault, worker: int, phase: Any) -> FaultChanged:
        record = fault.record(phase, (worker,), self.now, self.version)
        return FaultChanged(record, (f"worker-{worker}",), self.now)

    def _push(self, pushes: list[tuple[int, bool]]) -> list[RunEntry]:
        rows = np.zeros(len(pushes), UPDATE)
        rows["worker"], rows["applied"] = zip(*pushes, strict=True)
        rows["iteration"] = self.version + np.cumsum(rows["applied"])
        rows["staleness"] = np.arange(len(rows))
        rows["payload_bytes"], rows["message_bytes"] = 100, 124
        rows["time"] = rows["host_time"] = self.now
        applied = int(rows["applied"].sum())
        first, self.version = self.version, self.version + applied
        for name, size in (("payload", 100), ("message", 124), ("wire", 150)):
            self.ledger[f"{name}_bytes"] += size * len(rows)
        values = np.arange(first, self.version, dtype=np.float64)[:, None] * [1.0, 2.0]
        return [Updates(rows, self.version), *([Diagnoses(values, self.version)] * bool(applied))]


def content(value: Any) -> Any:
    """Return a state or a part of it as values that can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: content(one) for name, one in value.items()}
    return value


def shown(state: RunState) -> dict[str, Any]:
    """Return what is exported of a state, without what only one of the two can know."""
    found = {
        one.name: content(getattr(state, one.name))
        for one in fields(RunState)
        if not one.name.startswith("_") and one.name not in OF_ONE | {"workers", "classes"}
    }
    workers = state.workers
    found |= {
        name: content(getattr(workers, name)) for name in ("struck", "lost", "cut", "suspected")
    }
    found["staleness"] = content(state.staleness.counts)
    return found


@given(
    st.lists(ACTIONS, min_size=1, max_size=40),
    st.lists(st.floats(0, 0.5), max_size=5).map(sorted),
)
def test_a_replay_ends_with_the_metrics_of_the_run(
    actions: list[tuple[str, Any]], steps: list[float]
) -> None:
    happening, clock = Happening(), SimpleNamespace(monotonic=lambda: happening.now)
    live, outcome = LiveRun(PLAN, "time-1"), RunOutcome()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, PLAN.spec.name, "time-1", PLAN.label)
        with mock.patch.object(run_log, "time", clock):
            log = RunLog(
                directory,
                SPEC,
                MANIFEST,
                readers=[live, outcome],
                name="worker-{}".format,
                began=0.0,
            )
            for action in [*actions, ("push", [(0, True)])]:
                for entry in happening.entries(*action):
                    log.take(entry)
            outcome.complete()
            summary = outcome.summary(PLAN, happening.ledger, happening.ledger)
            log.close("completed", None, summary)
            live.ended(summary)
        replay = ReplayedRun(RecordedRun.load(directory))
        for step in [*steps, replay.duration]:
            replay.advance(step)
        assert shown(replay.read()) == shown(live.read())

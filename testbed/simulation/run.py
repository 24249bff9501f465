"""Carrying out one simulated run; it leaves the same run directory as an emulation."""

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from testbed.checkpoints.due import Checkpoints
from testbed.checkpoints.files import CheckpointFiles
from testbed.errors import RunError, TestbedError
from testbed.experiment.load import dump
from testbed.faults.fault import SERVER as THE_SERVER
from testbed.faults.telling import told
from testbed.learning import datasets
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.metrics.live import LiveRun
from testbed.orchestrator.ending import EndError, explain, signals
from testbed.orchestrator.outcome import Outcome, manifest
from testbed.orchestrator.plan import Plan
from testbed.orchestrator.resuming import FOLDER, Resumption
from testbed.orchestrator.watching import Progress, Watcher
from testbed.roles.service import UpdateRow
from testbed.roles.settings import SERVER, worker_name
from testbed.simulation.star import STORED, ServerKilledError
from testbed.simulation.systems import MeshSystem, StarSystem, system
from testbed.streams import stream
from testbed.telemetry.records import UPDATE
from testbed.telemetry.run_log import RunLog

_ROWS = 1500
LOOK_PERIOD = 0.1
"""Seconds between two looks at signals, and at how far the run is."""


class SimulatedRun:
    """Carries one plan out in this process; use once."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        watcher: Watcher,
        began: float,
        metrics: LiveRun | None = None,
        *,
        resumption: Resumption | None = None,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            directory: the run directory to make.
            began: CLOCK_MONOTONIC when the command began, from which set-up is counted.
            metrics: whom to tell how it goes, if somebody exports it.
            resumption: what to go on from, if the run is not begun.
        """
        self._resumption = resumption
        self._server_kills = 0
        self._suspicions = 0
        self._again = dict.fromkeys(("updates", "evaluations", "faults", "suspicions"), 0)
        self._checkpoints: Checkpoints | None = None
        self._opened = contextlib.ExitStack()
        self._metrics = metrics
        self._plan = plan
        self._settings = plan.settings
        self._directory = directory
        self._watcher = watcher
        self._began = began
        self._outcome = Outcome()
        self._progress = Progress("loading", plan.settings.workers, plan.settings.updates)
        self._rows = np.empty(_ROWS, UPDATE)
        self._count = self._told = self._version = 0
        self._ingress = {"payload_bytes": 0, "message_bytes": 0, "wire_bytes": 0}
        self._after_drain: dict[str, int] | None = None
        self._next_look = self._training = 0.0

    def execute(self) -> dict[str, Any]:
        """Carry the run out and return its summary, which is also in the run directory.

        Raises:
            RunError: not even the run directory could be made, or its end not be written down.
        """
        try:
            self._log = RunLog(
                self._directory,
                dump(self._plan.spec),
                manifest(self._plan),
                kept=self._resumption.kept if self._resumption else None,
                struck=self._metrics.fault if self._metrics else None,
            )
        except OSError as error:
            raise RunError(explain(error, self._directory)) from error
        outcome = self._outcome
        with signals() as wake_up, self._opened:
            try:
                self._load()
                self._simulate(lambda: self._look(wake_up))
                outcome.ended = "completed"
            except EndError as end:
                outcome.ended, outcome.reason = end.ended, end.reason
            except TestbedError as error:
                outcome.ended, outcome.reason = "failed", str(error)
            except OSError as error:
                self._log.give_back_reserve()
                outcome.ended, outcome.reason = "failed", explain(error, self._directory)
            return self._write_end()

    def _load(self) -> None:
        settings = self._settings
        self._tell_progress()
        torch.set_num_threads(1)
        self._dataset = datasets.load(
            settings.dataset, settings.scaling, settings.train_images, settings.seed
        )
        self._images = self._dataset.test_images[: settings.evaluation_images]
        self._labels = self._dataset.test_labels[: settings.evaluation_images]
        self._learner = Learner(settings.model, settings.batch_size)
        self._initial = initialise(
            settings.model, settings.initialisation, stream(settings.seed, "initial")
        )

    def _simulate(self, between: Callable[[], None]) -> None:
        self._progress.phase = "devices"
        make = system(self._settings)
        self._system = self._made(make)
        self._prepare_checkpoints()
        self._progress.devices = self._settings.workers
        self._progress.phase = "training"
        self._tell_progress()
        before = self._resumption.host_seconds if self._resumption else 0.0
        self._training = time.monotonic() - before
        self._run(make, between)
        self._flush()
        self._outcome.updates = self._system.version  # the last may be one that waited for nobody
        self._outcome.parameters_sha256 = self._log.parameters(self._system.parameters)
        self._system.drain()
        self._after_drain = self._system.ledger()
        version, wanted = self._system.version, self._settings.updates
        if version < wanted:
            reason = f"no further update could come about after {version:,} of {wanted:,}"
            raise EndError("failed", reason)

    def _made(self, make: type[StarSystem] | type[MeshSystem]) -> StarSystem | MeshSystem:
        return make(self._settings, self._dataset, self._learner, self._initial, self)

    def _run(self, make: type[StarSystem] | type[MeshSystem], between: Callable[[], None]) -> None:
        """Run to the end, with another server each time that it is killed."""
        while True:
            try:
                self._system.clock.run(between)
                return
            except ServerKilledError:
                self._system = self._made(make)
                self._come_back()

    def _come_back(self) -> None:
        """The server comes back from its last checkpoint; what is on record comes about once more."""
        assert self._checkpoints is not None
        self._flush()
        self._server_kills += 1
        state = self._checkpoints.newest()
        if state is not None:
            self._system.restore(state["system"])
        self._system.went_on(time.monotonic() - self._training, self._server_kills)
        before = state["counts"] if state else {}
        self._again = {name: n - before.get(name, 0) for name, n in self._counts().items()}
        version = self._system.version
        text = f"back from the checkpoint of update {version:,}" if state else "begins anew"
        self._log.event(self._seconds(), "info", text, SERVER)

    def _counts(self) -> dict[str, int]:
        """How often what was told."""
        return self._log.counts | {"suspicions": self._suspicions}

    def _was_told(self, journal: str) -> bool:
        """Whether the next row of a journal is there already, and comes about once more."""
        if not self._again[journal]:
            return False
        self._again[journal] -= 1
        return True

    def _prepare_checkpoints(self) -> None:
        going_on, every = self._resumption, self._plan.spec.checkpoints.every
        files = going_on.files if going_on else None
        if every is not None:
            if files is None:
                files = CheckpointFiles.open(self._directory / FOLDER, STORED)
                self._opened.enter_context(files)
            self._checkpoints = Checkpoints(every, files)
        if going_on is None:
            return
        self._log.event(self._seconds(), "info", going_on.told)
        if going_on.state is not None:
            self._restore(going_on.state)
        self._system.went_on(going_on.host_seconds, self._server_kills)

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._system.restore(state["system"])
        for name, value in state["outcome"].items():
            setattr(self._outcome, name, value)
        self._ingress = state["ingress"]
        self._server_kills = state["server_kills"]
        self._suspicions = state["counts"]["suspicions"]
        self._version = self._system.version
        if self._outcome.accuracies:
            self._progress.accuracy = self._outcome.accuracies[-1]
        if self._checkpoints:
            self._checkpoints.last = self._version

    def _keep(self) -> None:
        """Write a checkpoint of what there is now, between two events."""
        assert self._checkpoints is not None
        self._flush()
        state = {
            "version": self._system.version,
            "counts": self._counts(),
            "outcome": asdict(self._outcome),
            "ingress": self._ingress,
            "server_kills": self._server_kills,
            "system": self._system.state(),
        }
        self._checkpoints.write(self._system.version, state)

    def _seconds(self) -> float:
        """Since the run began, as it goes: without the time between its sessions."""
        before = self._resumption.host_seconds if self._resumption else 0.0
        return before + time.monotonic() - self._began

    # -- the service's observer

    def row(self, row: UpdateRow, version: int) -> None:
        """A push was taken in, which led to this version."""
        self._version = version
        if self._was_told("updates"):
            return
        self._rows[self._count] = row
        self._count += 1
        if self._outcome.first_update is None:
            self._outcome.first_update = time.monotonic() - self._began
        if self._count == _ROWS:
            self._flush()

    def fault(self, record: dict[str, Any]) -> None:
        """A fault begins or ends."""
        if self._was_told("faults"):
            return
        names = [
            SERVER if device == THE_SERVER else worker_name(device) for device in record["devices"]
        ]
        self._log.fault(record, names, time.monotonic() - self._training)
        text = told(record, names)
        self._log.event(self._seconds(), "info", text, names[0] if len(names) == 1 else None)

    def checkpoint(self) -> None:
        """Evaluate the version that there is now."""
        if self._was_told("evaluations"):
            return
        self._flush()
        self._ingress = self._system.ledger()
        if self._system.parameters is not self._learner.parameters:
            np.copyto(self._learner.parameters, self._system.parameters)
        accuracy, loss = self._learner.evaluate(self._images, self._labels)
        row = {
            "iteration": self._system.version,
            "time": self._system.clock.now,
            "accuracy": accuracy,
            "loss": loss,
            **self._ingress,
        }
        self._log.evaluation(row)
        if self._metrics:
            self._metrics.evaluated(row)
        self._outcome.accuracies.append(accuracy)
        self._progress.accuracy = accuracy

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        """A worker has been silent for so many seconds, and is left out from now on."""
        if self._was_told("suspicions"):
            return
        self._suspicions += 1
        level, text = self._outcome.suspects(silent, time)
        self._event(level, text, worker)
        self._watcher.event(level, f"{worker_name(worker)}: {text}")
        if self._metrics:
            self._metrics.suspected(worker, yes=True)

    def welcomed(self, worker: int, time: float, version: int) -> None:
        """Something came of a suspected worker, which takes part again."""
        if self._was_told("suspicions"):
            return
        self._suspicions += 1
        self._event(*self._outcome.welcomes(time), worker)
        if self._metrics:
            self._metrics.suspected(worker, yes=False)

    def _event(self, level: str, text: str, worker: int) -> None:
        self._log.event(self._seconds(), level, text, worker_name(worker))

    def _tell(self) -> None:
        """Tell whoever exports metrics what was not told yet."""
        if self._metrics:
            rows = self._rows[self._told : self._count]
            self._metrics.simulated(rows, self._system.clock.now, self._system.ledger())
            self._told = self._count

    def _tell_progress(self) -> None:
        self._watcher.progress(self._progress)
        if self._metrics:
            self._metrics.progress(self._progress)

    def _flush(self) -> None:
        if self._count:
            self._tell()
            rows = self._rows[: self._count]
            self._log.updates(rows)
            self._outcome.took_in(rows, self._version)
            self._count = self._told = 0

    def _look(self, wake_up: int) -> None:
        if self._checkpoints and self._checkpoints.due(self._system.version):
            self._keep()
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_PERIOD
        if select.select([wake_up], [], [], 0)[0]:
            number = os.read(wake_up, 1)[0]
            if self._checkpoints and not any(self._again.values()):
                self._keep()  # so that nothing is to be done again
            raise EndError("interrupted", f"stopped by {signal.Signals(number).name}")
        self._see(now)
        self._tell_progress()
        self._tell()

    def _see(self, now: float) -> None:
        """Note how far the simulation is."""
        self._progress.wire_bytes = self._system.ledger()["wire_bytes"]
        self._progress.moved(now, self._system.version)

    def _write_end(self) -> dict[str, Any]:
        outcome = self._outcome
        if outcome.ended == "completed":
            self._see(time.monotonic())
        self._progress.phase = "finishing"
        self._tell_progress()
        try:
            self._flush()
            complete = outcome.ended == "completed"
            ingress = self._ingress if complete or outcome.updates == 0 else self._system.ledger()
            summary = outcome.summary(self._plan, ingress, self._after_drain, self._log.struck)
            summary["traffic"] = {
                "capture": None,
                "reconciled": None,
                "differences": [],
                "modelled": True,
            }
            if outcome.parameters_sha256:
                summary |= self._system.told()
            if outcome.reason:
                self._log.event(self._seconds(), "error", outcome.reason)
            if self._checkpoints:
                summary["checkpoints"] = self._checkpoints.account()
            self._log.close(outcome.ended, outcome.reason, summary)
            if complete and (self._directory / FOLDER).is_dir():
                shutil.rmtree(self._directory / FOLDER)
        except OSError as error:
            raise RunError(explain(error, self._directory)) from error
        if self._metrics:
            self._metrics.ended(summary)
        return summary

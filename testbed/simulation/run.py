"""Carrying out one simulated run; it leaves the same run directory as an emulation."""

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
from testbed.orchestrator.watching import Progress, Watcher
from testbed.roles.service import UpdateRow
from testbed.roles.settings import SERVER, worker_name
from testbed.simulation.systems import system
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
    ) -> None:
        """Prepare; nothing is started.

        Args:
            directory: the run directory to make.
            began: CLOCK_MONOTONIC when the command began, from which set-up is counted.
            metrics: whom to tell how it goes, if somebody exports it.
        """
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
            struck = self._metrics.fault if self._metrics else None
            self._log = RunLog(self._directory, dump(self._plan.spec), manifest(self._plan), struck)
        except OSError as error:
            raise RunError(explain(error, self._directory)) from error
        outcome = self._outcome
        with signals() as wake_up:
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
        self._system = make(self._settings, self._dataset, self._learner, self._initial, self)
        self._progress.devices = self._settings.workers
        self._progress.phase = "training"
        self._tell_progress()
        self._training = time.monotonic()
        self._system.clock.run(between)
        self._flush()
        self._outcome.updates = self._system.version  # the last may be one that waited for nobody
        self._outcome.parameters_sha256 = self._log.parameters(self._system.parameters)
        self._system.drain()
        self._after_drain = self._system.ledger()
        version, wanted = self._system.version, self._settings.updates
        if version < wanted:
            reason = f"no further update could come about after {version:,} of {wanted:,}"
            raise EndError("failed", reason)

    # -- the service's observer

    def row(self, row: UpdateRow, version: int) -> None:
        """A push was taken in, which led to this version."""
        self._rows[self._count] = row
        self._count += 1
        self._version = version
        if self._outcome.first_update is None:
            self._outcome.first_update = time.monotonic() - self._began
        if self._count == _ROWS:
            self._flush()

    def fault(self, record: dict[str, Any]) -> None:
        """A fault begins or ends."""
        names = [
            SERVER if device == THE_SERVER else worker_name(device) for device in record["devices"]
        ]
        now = time.monotonic()
        self._log.fault(record, names, now - self._training)
        text = told(record, names)
        self._log.event(now - self._began, "info", text, names[0] if len(names) == 1 else None)

    def checkpoint(self) -> None:
        """Evaluate the version that there is now."""
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
        level, text = self._outcome.suspects(silent, time)
        self._event(level, text, worker)
        self._watcher.event(level, f"{worker_name(worker)}: {text}")
        if self._metrics:
            self._metrics.suspected(worker, yes=True)

    def welcomed(self, worker: int, time: float, version: int) -> None:
        """Something came of a suspected worker, which takes part again."""
        self._event(*self._outcome.welcomes(time), worker)
        if self._metrics:
            self._metrics.suspected(worker, yes=False)

    def _event(self, level: str, text: str, worker: int) -> None:
        self._log.event(time.monotonic() - self._began, level, text, worker_name(worker))

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
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_PERIOD
        if select.select([wake_up], [], [], 0)[0]:
            number = os.read(wake_up, 1)[0]
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
                self._log.event(time.monotonic() - self._began, "error", outcome.reason)
            self._log.close(outcome.ended, outcome.reason, summary)
        except OSError as error:
            raise RunError(explain(error, self._directory)) from error
        if self._metrics:
            self._metrics.ended(summary)
        return summary

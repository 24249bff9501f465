"""Turn the roles' reports into the output of the server's process: lines for people, and results.

The reports are those that an orchestrator reads (``testbed.orchestrator.run``), and the results have
the same names and units. Wire bytes are missing, because no traffic is captured.

Reports are read to the end even if the results can no longer be written, because a role blocks when
its reports are not read. The run then ends, and its summary is written into disk space that was
reserved for it.
"""

import contextlib
import csv
import hashlib
import json
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from testbed.channel import Channel
from testbed.device_names import EVALUATOR_NAME, worker_name
from testbed.errors import RunError
from testbed.experiment.load import dump
from testbed.messages.reports import (
    REPORTS,
    ConnectionClosed,
    DevicesConnected,
    EvaluationDue,
    EvaluationLeftOut,
    EventReported,
    FinalParameters,
    RoleReport,
    ServerFinished,
    ServerListening,
    TrainingBegun,
    UpdatesApplied,
    VersionEvaluated,
    WorkerSuspected,
    WorkerWelcomed,
)
from testbed.planning.plan import Plan
from testbed.quantities import as_bytes, as_count, as_decimal, as_duration
from testbed.runs.left_out import LeftOut
from testbed.runs.outcome import Outcome
from testbed.telemetry.records import UPDATE

COLUMNS = ("iteration", "time", "accuracy", "loss", "payload_bytes", "message_bytes")
"""The columns of ``curve.csv``: those of a run directory without the wire bytes."""
_RESERVE = 64 * 1024
_LEDGER = ("payload_bytes", "message_bytes")


def make_directory(results: Path, plan: Plan) -> Path:
    """Make the folder of a run's results; a folder is never used twice.

    Raises:
        RunError: the folder cannot be made.
    """
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{plan.spec.seed}"
    directory = results / plan.spec.name / name / plan.label
    try:
        directory.mkdir(parents=True)
        (directory / "spec.yaml").write_text(dump(plan.spec), encoding="utf-8")
    except OSError as error:
        raise _unwritable(directory, error) from error
    return directory


def _unwritable(directory: Path, error: OSError) -> RunError:
    return RunError(
        f"results cannot be written to {directory} ({error.strerror}): free some space there, or name "
        "another folder by --results"
    )


class Account:
    """The account of one run, made from the roles' reports.

    Attributes:
        directory: the folder of the results.
        failure: why the results can no longer be written; None while they can.
    """

    def __init__(self, plan: Plan, directory: Path, say: Callable[[str], None]) -> None:
        """Open the files of the results.

        Args:
            say: called with each line to show.

        Raises:
            RunError: the directory cannot be written to.
        """
        self._plan = plan
        self._say = say
        self.directory = directory
        self._workers = plan.settings.workers
        self._greeted = 0
        self._outcome = Outcome()
        self._due: dict[int, dict[str, Any]] = {}
        self._last = dict.fromkeys(_LEDGER, 0)
        self._total: Mapping[str, int] | None = None
        self._parameters = hashlib.sha256()
        self._complaint: str | None = None
        self._left_out = LeftOut()
        self.failure: str | None = None
        self._reserve = directory / ".reserve"
        try:
            self._reserve.write_bytes(os.urandom(_RESERVE))
            self._curve = (directory / "curve.csv").open("x", newline="", encoding="utf-8")
            self._write(COLUMNS)
        except OSError as error:
            raise _unwritable(directory, error) from error

    def follow(
        self, reports: Channel, listening: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        """Read reports until no writer is left.

        Args:
            listening: called when the parameter server listens.
            failed: called once, if the results can no longer be written; ``failure`` says why.
        """
        while (report := REPORTS.receive(reports)) is not None:
            if isinstance(report, ServerListening):
                listening()
            if self.failure is not None:
                continue  # a role must not wait for a reader that has stopped
            try:
                self._take(report)
            except Exception as error:
                if isinstance(error, OSError):
                    self.failure = f"{_unwritable(self.directory, error)}"
                else:
                    traceback.print_exc()
                    self.failure = f"results cannot be written: {type(error).__name__}: {error}"
                failed()

    def close(self, ended: str | None) -> dict[str, Any]:
        """Write how the run ended; return the summary.

        Args:
            ended: ``interrupted`` or ``failed`` where that is known; None: the reports decide.

        Raises:
            RunError: the summary cannot be written.
        """
        if self.failure is not None:
            ended, self._complaint = ended or "failed", self.failure
        outcome, wanted = self._outcome, self._plan.settings.training.updates
        if ended is not None or outcome.updates < wanted or self._due:
            outcome.ended = ended or "failed"
            outcome.reason = self._complaint or (
                f"{len(self._due)} evaluations are missing: the evaluator left"
                if outcome.updates == wanted
                else f"the run ended after {outcome.updates:,} of {wanted:,} updates"
            )
        else:
            outcome.ended = "completed"
        summary = outcome.summary(self._plan, self._last, self._total, {})
        summary |= {"traffic": None, "runtime": "standalone", "workers": self._greeted}
        summary |= self._left_out.summary()
        text = json.dumps(summary, indent=2, allow_nan=False)
        try:
            self._reserve.unlink(missing_ok=True)
            (self.directory / "summary.json").write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise _unwritable(self.directory, error) from error
        finally:
            with contextlib.suppress(OSError):  # a buffered row for which there was no space
                self._curve.close()
        if self._left_out:
            self._say(f"warning: {self._left_out.told}")
        if outcome.ended == "completed":
            self._say(
                f"finished: {as_count(outcome.updates)} updates in "
                f"{as_duration(outcome.host_seconds)}, parameters_sha256 {outcome.parameters_sha256}"
            )
        else:
            self._say(f"{outcome.ended}: {outcome.reason}")
        self._say(f"results: {self.directory}")
        return summary

    def _take(self, report: RoleReport) -> None:
        match report:
            case UpdatesApplied():
                self._outcome.took_in(np.frombuffer(report.raw, UPDATE), report.version)
            case EvaluationDue():
                self._last = {key: getattr(report, key) for key in _LEDGER}
                row = {"iteration": report.version, "time": report.run_time, **self._last}
                self._due[report.version] = row
            case VersionEvaluated():
                self._evaluated(report)
            case DevicesConnected(count):
                self._greeted = count
                self._say(f"worker greeted: {count} of {self._workers}")
            case TrainingBegun():
                self._say("training begins")
            case FinalParameters():
                self._parameters.update(report.raw)  # the parts arrive in order
            case ServerFinished():
                self._outcome.updates = report.version
                self._outcome.parameters_sha256 = self._parameters.hexdigest()
                self._total = {key: getattr(report, key) for key in _LEDGER}
            case ConnectionClosed(worker=int(), reason=str()):
                self._outcome.workers_lost += 1
            case EventReported(level, text, number):
                device = self._name(number)
                text = text if device is None else f"{device}: {text}"
                if level == "error":
                    self._complaint = text
                if level != "info":
                    self._say(f"{level}: {text}")
            case _:
                self._silence(report)

    def _silence(self, report: RoleReport) -> None:
        """Handle a suspected worker, one that came back, and an evaluation that will not arrive."""
        match report:
            case EvaluationLeftOut(version, reason):
                self._due.pop(version, None)
                if warning := self._left_out.add(version, reason):
                    self._say(f"warning: {warning}")
            case WorkerSuspected(number, silent, when):
                level, text = self._outcome.suspects(silent, when)
                self._say(f"{level}: {self._name(number)}: {text}")
            case WorkerWelcomed(number, when):
                _, text = self._outcome.welcomes(when)
                self._say(f"{self._name(number)}: {text}")

    def _evaluated(self, report: VersionEvaluated) -> None:
        version, accuracy = report.version, report.accuracy
        row = self._due.pop(version, None)
        if row is None:
            return  # this version's evaluation was not due
        row |= {"accuracy": accuracy, "loss": report.loss}
        self._outcome.accuracies.append(accuracy)
        self._write([row[key] for key in COLUMNS])
        self._say(
            f"update {as_count(version)} of {as_count(self._plan.settings.training.updates)}: "
            f"accuracy {as_decimal(accuracy, 2)} %, ingress {as_bytes(row['payload_bytes'])} payload, "
            f"{as_bytes(row['message_bytes'])} messages"
        )

    def _write(self, row: Iterable[object]) -> None:
        csv.writer(self._curve, lineterminator="\n").writerow(row)
        self._curve.flush()

    def _name(self, number: int | None) -> str | None:
        if number is None or number < 0:
            return None
        return EVALUATOR_NAME if number == self._workers else worker_name(number)

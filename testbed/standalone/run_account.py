"""Turn the roles' reports into the output of the server's process: lines for people, and results.

The reports are those that an orchestrator reads (``testbed.orchestrator.emulated_run``), and the
results have the same names and units; those of several servers are put together as it does. Wire bytes
are missing, because no traffic is captured.

Reports are read to the end even if the results can no longer be written, because a role blocks when
its reports are not read. The run then ends, and its summary is written into disk space that was
reserved for it.
"""

import contextlib
import csv
import functools
import math
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from testbed.channel import Channel
from testbed.device_names import EVALUATOR_NAME, SERVER_NUMBER, server_index, worker_name
from testbed.display.standard_streams import tell
from testbed.errors import RunError
from testbed.experiment.load import dump
from testbed.experiment.model_conflicts import layout_of
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
    Suspected,
    TrainingBegun,
    UpdatesApplied,
    VersionEvaluated,
    Welcomed,
)
from testbed.number_text import as_bytes, as_count, as_decimal, as_duration
from testbed.orchestrator.server_reports import Servers
from testbed.planning.plan import Plan
from testbed.run_endings import Ended, is_complete
from testbed.runs.outcome import RunOutcome
from testbed.standalone.pending_evaluations import LEDGER, PendingEvaluations
from testbed.telemetry.entries import EvaluationMade, Updates
from testbed.telemetry.evaluation_log import MEASURED
from testbed.telemetry.json_text import json_text
from testbed.telemetry.update_rows import UPDATE
from testbed.training.slices import slices_of

COLUMNS = ("iteration", "time", "accuracy", "loss", *LEDGER)
"""The columns of ``curve.csv``: those of a run directory without the wire bytes."""
_RESERVE = 64 * 1024


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


class RunAccount:
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
        self._outcome = RunOutcome()
        measure = plan.settings.training.measure
        self._columns = COLUMNS if measure is None else (*COLUMNS, MEASURED)
        self._servers = Servers(slices_of(plan.settings, layout_of(plan.spec)))
        self._evaluations = PendingEvaluations(self._servers)
        self._lost: Counter[int] = Counter()  # workers, by server
        self._complaint: str | None = None
        self._lost_server: str | None = None
        self.failure: str | None = None
        self._reserve = directory / ".reserve"
        try:
            self._reserve.write_bytes(os.urandom(_RESERVE))
            self._curve = (directory / "curve.csv").open("x", newline="", encoding="utf-8")
            self._write(map(self._named, self._columns))
        except OSError as error:
            raise _unwritable(directory, error) from error

    def follow(
        self, reports: Channel, listening: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        """Read reports until no writer is left.

        Args:
            listening: called when all parameter servers listen.
            failed: called once, if the results can no longer be written; ``failure`` says why.
        """
        while (report := REPORTS.receive(reports)) is not None:
            if isinstance(report, ServerListening) and self._servers.listens(report.server):
                listening()
            self._guard(functools.partial(self._take, report), failed)
        self._evaluations.give_up()
        self._guard(self._write_complete, failed)

    def _guard(self, action: Callable[[], None], failed: Callable[[], None]) -> None:
        """Do something with the results, unless they can no longer be written."""
        if self.failure is not None:
            return  # a role must not wait for a reader that has stopped
        try:
            action()
        except Exception as error:
            if isinstance(error, OSError):
                self.failure = f"{_unwritable(self.directory, error)}"
            else:
                tell(traceback.format_exc())
                self.failure = f"results cannot be written: {type(error).__name__}: {error}"
            failed()

    def close(self, ended: Ended | None) -> dict[str, Any]:
        """Write how the run ended; return the summary.

        Args:
            ended: ``interrupted`` or ``failed`` where that is known; None: the reports decide.

        Raises:
            RunError: the summary cannot be written.
        """
        if self.failure is not None:
            ended, self._complaint = ended or "failed", self.failure
        outcome, wanted = self._outcome, self._plan.settings.training.updates
        complete = outcome.updates == wanted and outcome.parameters_sha256 is not None
        missing = self._evaluations.missing
        if ended is not None or not complete or missing:
            outcome.ended = ended or "failed"
            outcome.reason = self._complaint or (
                f"{missing} evaluations are missing: the evaluator left"
                if complete
                else f"the run ended after {outcome.updates:,} of {wanted:,} updates"
            )
        else:
            outcome.complete()
        outcome.workers_lost = max(self._lost.values(), default=0)
        summary = self._summary()
        summary |= {"traffic": None, "runtime": "standalone", "workers": self._greeted}
        summary |= self._evaluations.left_out.summary()
        text = json_text(summary, indent=2)
        try:
            self._reserve.unlink(missing_ok=True)
            (self.directory / "summary.json").write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise _unwritable(self.directory, error) from error
        finally:
            with contextlib.suppress(OSError):  # a buffered row for which there was no space
                self._curve.close()
        if self._evaluations.left_out:
            self._say(f"warning: {self._evaluations.left_out.told}")
        if is_complete(outcome.ended):
            self._say(
                f"finished: {as_count(outcome.updates)} updates in "
                f"{as_duration(outcome.host_seconds)}, parameters_sha256 {outcome.parameters_sha256}"
            )
        if outcome.reason:
            self._say(f"{outcome.ended}: {outcome.reason}")
        self._say(f"results: {self.directory}")
        return summary

    def _summary(self) -> dict[str, Any]:
        evaluations, of_each = self._evaluations, {}
        if self._servers.count > 1:
            of_each = dict(zip(self._plan.servers, evaluations.ingress_of_each, strict=True))
        return self._outcome.summary(
            self._plan, evaluations.ingress, evaluations.after_drain, of_each
        )

    def _take(self, report: RoleReport) -> None:
        match report:
            case UpdatesApplied():
                rows = self._servers.take(np.frombuffer(report.raw, UPDATE), report.server)
                version = self._servers.reached(report.server, report.version)
                self._outcome.take(Updates(rows, version))
            case EvaluationDue():
                self._evaluations.due(report)
                self._write_complete()
            case VersionEvaluated():
                self._evaluations.evaluated(report)
                self._write_complete()
            case DevicesConnected(count, server):
                self._greeted = self._servers.connected(server, count)
                if self._greeted == count:  # to all servers
                    self._say(f"worker greeted: {count} of {self._workers}")
            case TrainingBegun():
                if self._servers.begins(report):
                    self._say("training begins")
            case FinalParameters():
                self._servers.add_parameters(report)
            case ServerFinished():
                self._finished(report)
            case ConnectionClosed(worker=int(), reason=str()):
                self._lost[report.server] += 1  # a worker is connected to all servers
            case EventReported():
                self._event(report)
            case _:
                self._silence(report)

    def _silence(self, report: RoleReport) -> None:
        """Handle a suspected worker, one that came back, and an evaluation that will not arrive."""
        match report:
            case EvaluationLeftOut():
                if warning := self._evaluations.leave_out(report):
                    self._say(f"warning: {warning}")
            case Suspected(number) | Welcomed(number):
                self._outcome.take(report)
                warning = "warning: " if isinstance(report, Suspected) else ""
                self._say(f"{warning}{self._name(number)}: {report}")

    def _event(self, report: EventReported) -> None:
        device = self._name(report.device)
        text = report.text if device is None else f"{device}: {report.text}"
        if report.level == "warning":
            self._say(f"warning: {text}")
        # After the loss of a server, the errors of other devices only follow from it.
        if report.level == "error" and self._lost_server is None:
            self._say(f"error: {text}")
            self._complaint = text
            if report.device is not None and report.device < SERVER_NUMBER:
                self._lost_server = device

    def _write_complete(self) -> None:
        for row in self._evaluations.complete():
            version, accuracy = row["iteration"], row["accuracy"]
            self._outcome.take(EvaluationMade(row))
            self._write([row[key] for key in self._columns])
            what = f"accuracy {as_decimal(accuracy, 2)} %"
            if (measure := self._plan.settings.training.measure) is not None:
                what = f"{measure.column} {row['measured']:.4g} {measure.unit}".strip()
            elif math.isnan(accuracy) or not math.isfinite(row["loss"]):
                what = f"loss {row['loss']:.4g}"
            self._say(
                f"update {as_count(version)} of {as_count(self._plan.settings.training.updates)}: "
                f"{what}, ingress {as_bytes(row['payload_bytes'])} "
                f"payload, {as_bytes(row['message_bytes'])} messages"
            )

    def _finished(self, report: ServerFinished) -> None:
        self._evaluations.finish(report)
        if self._servers.finishes(report):
            self._outcome.updates = self._servers.version
            self._outcome.takes(self._servers.parameters)

    def _write(self, row: Iterable[object]) -> None:
        csv.writer(self._curve, lineterminator="\n").writerow(row)
        self._curve.flush()

    def _named(self, column: str) -> str:
        """Return the name of a column, of the run's measure its own."""
        measure = self._plan.settings.training.measure
        return measure.column if measure is not None and column == MEASURED else column

    def _name(self, number: int | None) -> str | None:
        if number is None or (number < 0 and self._servers.count == 1):
            return None
        if number < 0:
            return self._plan.servers[server_index(number)]
        return EVALUATOR_NAME if number == self._workers else worker_name(number)

"""The records of a run of programs: its log, its curve, its ledgers, and its summary."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.code_digest import package_digest
from testbed.device_names import SERVER_NAME
from testbed.messages.agent_reports import IngressRead, SocketsCounted, TrafficStopped
from testbed.messages.keeper_messages import ProgramMeasured
from testbed.metrics.live_programs import LivePrograms
from testbed.network.sysctls import OF_ALL
from testbed.orchestrator.run_notes import RunNotes
from testbed.orchestrator.server_ingress import ServerIngress
from testbed.planning.program_plan import ProgramPlan
from testbed.run_endings import SummaryContent
from testbed.runs import link_records
from testbed.runs.fidelity_readings import HostShares, of_programs
from testbed.runs.ledgers.ledgers import Ledgers, SocketCounts
from testbed.runs.ledgers.traffic_account import settle
from testbed.runs.outcome import RunOutcome, class_entries, graph, plan_entries
from testbed.runs.planned_run import PlannedRun
from testbed.runs.versions import commit, host, versions
from testbed.runs.watching import ProgramProgress
from testbed.telemetry.entries import EvaluationMade
from testbed.telemetry.event_kinds import EventKind
from traffic.sockets import Forgotten, Socket


class ProgramRecords(RunNotes[ProgramProgress]):
    """The records of one run.

    Attributes:
        began: when the programs began, in seconds of CLOCK_MONOTONIC; None before.
    """

    def __init__(
        self,
        planned: PlannedRun[ProgramPlan, LivePrograms],
        sampled: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Make the run directory.

        Args:
            sampled: as ``SampledLinks`` takes it.

        Raises:
            OSError: it cannot be made or written to.
        """
        plan, outcome = planned.plan, RunOutcome()
        log = planned.open_log(manifest(plan), outcome)
        super().__init__(planned, log, outcome, sampled)
        self.progress = ProgramProgress("loading", len(plan.devices), plan.spec.limits.time)
        self.began: float | None = None
        self.over: float | None = None
        self.host = HostShares()
        self.programs: dict[str, dict[str, Any]] = {}
        self.ledgers = Ledgers(
            plan.address(SERVER_NAME),
            {link.address: link.node for link in plan.links},
            plan.spec.traffic.capture,
            background=self.background.into(SERVER_NAME),
        )
        self.ingress = ServerIngress()
        self._measured: list[dict[str, Any]] = []
        self._written = 0
        self._odd = False

    @property
    def running_now(self) -> bool:
        """True from the start of the programs until they are over."""
        return self.began is not None and self.over is None

    def begin(self, when: float) -> None:
        """Record the moment of CLOCK_MONOTONIC at which the programs start."""
        self.began = when
        self.ledgers.began = when + time.time() - time.monotonic()
        self.ledgers.began_monotonic = when
        self.ledgers.save(self.log.traffic)

    def opened(self, program: str, device: str, tcp: Sequence[int], udp: Sequence[int]) -> None:
        """Record the ports at which a program can be reached."""
        for protocol, ports in (("tcp", tcp), ("udp", udp)):
            for port in ports:
                self.ledgers.ports[f"{device} {protocol} {port}"] = program
        self.ledgers.save(self.log.traffic)

    # -- what is measured

    def measured(self, report: ProgramMeasured) -> None:
        """Take in what a program has measured; values that cannot be are left out, with a warning."""
        section = self._plan.spec.measure
        assert section is not None and self.began is not None
        values = report.values
        accuracy = values.get("accuracy", math.nan)
        if not section.percent:
            accuracy = round(accuracy * 100, 10)
        if not math.isnan(accuracy) and not 0 <= accuracy <= 100:
            if not self._odd:
                self._odd = True
                given = values["accuracy"]
                text = (
                    f"{report.program} tells of an accuracy of {given:g}, which is no "
                    f"{'percentage' if section.percent else 'fraction of 1'}: such values are left out"
                    f"{'' if section.percent else '; for percent write `percent: true` in `measure`'}"
                )
                self.event("warning", text, None)
            accuracy = math.nan
        own = values.get(section.name) if section.name else None
        loss = values.get("loss", math.nan)
        if math.isnan(accuracy) and math.isnan(loss) and own is None:
            return
        last = self._measured[-1]["iteration"] if self._measured else -1
        told = values.get("round", math.nan)
        if self._measured and told == last and self._complement(accuracy, loss, own):
            return
        count = int(told) if not math.isnan(told) and told > last else max(last, 0) + 1
        self._measured.append(
            {
                "iteration": count,
                "time": report.when - self.began,
                "host_time": report.when,
                "accuracy": accuracy,
                "loss": loss,
                "measured": own,
            }
        )
        self.progress.measured = _first_known(accuracy, own, loss)
        self.progress.measure = _first_name(accuracy, own, section.name)

    @property
    def round(self) -> int:
        """The round of the last measurement; 0 before the first."""
        return self._measured[-1]["iteration"] if self._measured else 0

    def _complement(self, accuracy: float, loss: float, own: float | None) -> bool:
        """Add to the last measurement what another line tells of the same round, if it lacks that."""
        row = self._measured[-1]
        given = {"accuracy": accuracy, "loss": loss, "measured": own}
        new = {name: one for name, one in given.items() if one is not None and not math.isnan(one)}
        is_written = self._written == len(self._measured)
        if is_written or any(_is_known(row[name]) for name in new):
            return False
        row |= new
        return True

    def write_complete(self, *, last: bool = False) -> None:
        """Write the measurements whose wire bytes are known.

        Args:
            last: True if no later reading of the counter comes.
        """
        while self._written < len(self._measured):
            row = self._measured[self._written]
            if not last and not self.ingress.read_after(row["host_time"]):
                return
            self._written += 1
            wire = self.ingress.wire_bytes(row["host_time"])
            unknown = {"payload_bytes": None, "message_bytes": None}
            self.log.take(EvaluationMade(row | unknown | {"wire_bytes": wire}))

    # -- traffic

    def counted(self, event: IngressRead | TrafficStopped) -> None:
        """Take a reading of the counter of ingress."""
        self.background.take(event.background)
        self.ingress.counted(event.ingress["time"], int(event.ingress["bytes"]))
        self.progress.wire_bytes = self.ingress.newest

    def traffic_stopped(self, event: TrafficStopped) -> None:
        """Take in the last counts of the capture and of the class."""
        self.counted(event)
        self.background.take(event.background, event.background_sent)
        self.ledgers.capture, self.ledgers.counter = event.capture, event.counter
        self.ledgers.background = self.background.into(SERVER_NAME)

    def sockets_counted(self, event: SocketsCounted) -> None:
        """Take in one part of the kernel's counts of the server's TCP connections."""
        counts = self.ledgers.sockets or SocketCounts()
        counts.sockets += [Socket(*row) for row in event.rows]
        counts.forgotten += [Forgotten(*row) for row in event.forgotten]
        counts.lost = event.lost
        self.ledgers.sockets = counts

    # -- the end

    def close(self, running: Mapping[str, int]) -> SummaryContent:
        """Write the end of the run, and return its summary.

        Args:
            running: the instances of each program that still ran.
        """
        self.write_complete(last=True)
        self._warn_of_no_measurement()
        plan, log, outcome = self._plan, self.log, self.outcome
        seconds = (self.over or time.monotonic()) - self.began if self.began is not None else 0.0
        summary: SummaryContent = {
            **plan_entries(plan),
            "ended": outcome.ended,
            "reason": outcome.reason,
            "updates": self.round,
            **outcome.results(_measure(plan).get("measure")),
            "ingress": {"wire_bytes": self.ingress.newest},
            "setup_seconds": None if self.began is None else self.began - self._command_began,
            "training_seconds": seconds,
            "host_seconds": seconds,
            "workers_lost": outcome.workers_lost,
            **outcome.faults(),
            "programs": self.programs,
            "versions": versions(),
            "traffic": settle([self.ledgers], log.traffic),
            **self.background.summary(),
            **({"fidelity": of_programs(plan, self.host, self.over_links)} if seconds else {}),
        }
        self.write_links(seconds)
        if outcome.reason:
            self.event("error", outcome.reason, None, EventKind.ENDED)
        log.close(outcome.ended, outcome.reason, summary)
        if self._planned.metrics:
            self._planned.metrics.ended(outcome.ended)
        return summary

    def _warn_of_no_measurement(self) -> None:
        """Warn if nothing was measured that was to be."""
        section = self._plan.spec.measure
        if section is None or self._measured or self.began is None:
            return
        where = f"no line of {section.from_} has matched the pattern"
        if section.file is not None:
            where = f"{section.from_} has written no such number to {section.file}"
        device = self._plan.places(section.from_)[0]
        see = f"`testbed logs {device}/{section.from_}` shows what it has said"
        self.event("warning", f"measure: {where}, and there is no curve: {see}", None)


def _is_known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _first_known(accuracy: float, own: float | None, loss: float) -> float:
    return accuracy if not math.isnan(accuracy) else loss if own is None else own


def _first_name(accuracy: float, own: float | None, name: str | None) -> str:
    if not math.isnan(accuracy):
        return "accuracy"
    return "loss" if own is None or name is None else name


def manifest(plan: ProgramPlan) -> dict[str, Any]:
    """Return the content of the run directory's manifest at the start."""
    return {
        **plan_entries(plan),
        "workers": plan.spec.devices.workers,
        "served": True,
        "programs": {name: list(plan.places(name)) for name in plan.spec.programs},
        "classes": class_entries([one.name for one in plan.spec.devices.classes], plan.class_of),
        "links": link_records.unprobed(plan),
        "network": graph(plan.spec.network.graph),
        **_measure(plan),
        "sysctls": {**OF_ALL, **plan.sysctls},
        "versions": versions(),
        "code": package_digest(),
        "commit": commit(),
        "host": host(),
    }


def _measure(plan: ProgramPlan) -> dict[str, dict[str, str]]:
    section = plan.spec.measure
    if section is None or section.name is None:
        return {}
    return {"measure": {"name": section.name, "unit": section.unit, "better": section.better}}

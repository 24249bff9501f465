"""All that handles the messages of one run in the orchestrator, without processes."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from testbed.messages.reports import EvaluationDue, TrainingBegun, UpdatesApplied
from testbed.messages.requests import Request
from testbed.orchestrator.agent_events import AgentEvents
from testbed.orchestrator.checkpoint_store import CheckpointStores
from testbed.orchestrator.device_processes import DeviceProcesses
from testbed.orchestrator.evaluations import Evaluations
from testbed.orchestrator.injection.injection import Injection
from testbed.orchestrator.restoration import Restoration
from testbed.orchestrator.role_reports import RoleReports, RunParts
from testbed.orchestrator.setup_progress import SetupProgress
from testbed.orchestrator.training_records import TrainingRecords
from testbed.runs.planned_run import PlannedRun
from testbed.runs.watching import AnyProgress
from testbed.telemetry.update_rows import UPDATE
from tests.metrics.running import planned


class Watcher:
    """Keeps the events that a person would see."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def progress(self, progress: AnyProgress) -> None:
        """Ignore the progress."""

    def event(self, level: str, text: str) -> None:
        self.events.append((level, text))


class Agent:
    """Keeps the requests that an agent would carry out."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def ask(self, request: Request) -> None:
        self.requests.append(request)

    def devices(self, host: str) -> list[str]:
        """Return the devices on another host, which there is one of."""
        return ["worker-1", "worker-2"]


class Orchestrator:
    """All that handles the messages of one run, without processes."""

    def __init__(self, directory: Path) -> None:
        plan = planned(3)
        self.began = time.monotonic()
        self.directory, self.watcher = directory, Watcher()
        self.records = TrainingRecords(PlannedRun(plan, directory, self.watcher, self.began))
        self.store = CheckpointStores(directory, 10, None, plan.servers, whole=False)
        self.evaluations = Evaluations(self.records, ())
        self.devices = DeviceProcesses(plan, self.records)
        agent: Any = Agent()
        self.devices.agent, self.requests = agent, agent.requests
        injection = Injection(
            plan.settings,
            {number: name for name, number in plan.workers.items()},
            aggregators=dict(enumerate(plan.aggregators, plan.settings.workers)),
            ask=self.devices.ask,
            start=self.devices.start,
            log=self.records.log,
            deduplication=self.records.deduplication,
            clock=time.monotonic,
        )
        restoration = Restoration(
            self.store,
            records=self.records,
            evaluations=self.evaluations,
            devices=self.devices,
            injection=injection,
        )
        self.setup = SetupProgress(self.began)
        handled = self.records, self.evaluations, self.devices, injection, restoration
        parts = RunParts(plan, *handled, self.setup, None)
        self.reports = RoleReports(parts)
        self.events = AgentEvents(parts, read_reports=lambda: None)

    def logged(self) -> list[str]:
        text = (self.directory / "events.jsonl").read_text()
        return [json.loads(line)["event"] for line in text.splitlines()]

    def train(self, versions: int) -> None:
        """Report the begin of training, and one applied update for each version."""
        self.reports.handle(TrainingBegun(self.began))
        for version in range(1, versions + 1):
            row = np.zeros(1, UPDATE)
            row["iteration"], row["applied"], row["payload_bytes"] = version, True, 100
            self.reports.handle(UpdatesApplied(version, row.tobytes()))

    def evaluate(self, version: int, **changes: Any) -> None:
        moment = self.began + version
        self.reports.handle(EvaluationDue(version, moment, version, 100 * version, 200, **changes))

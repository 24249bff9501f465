"""What the orchestrator does with each message: of the roles, and of the agent."""

import json
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from testbed.device_names import SERVER_NUMBER
from testbed.messages.events import (
    Event,
    IngressRead,
    LibrariesLoaded,
    NetworkBuilt,
    ProcessExited,
    RunFailed,
)
from testbed.messages.reports import (
    CheckpointBegun,
    EvaluationDue,
    EvaluationLeftOut,
    EventReported,
    FinalParameters,
    RoleReport,
    ServerFinished,
    ServerListening,
    ServerRestored,
    TrainingBegun,
    UpdatesApplied,
    VersionEvaluated,
    WorkerSuspected,
)
from testbed.messages.requests import ReadIngress, Request, StartRole
from testbed.orchestrator.agent_events import AgentEvents
from testbed.orchestrator.checkpoint_store import CheckpointStore
from testbed.orchestrator.devices import Devices
from testbed.orchestrator.evaluations import Evaluations
from testbed.orchestrator.injection.injection import Injection
from testbed.orchestrator.records import Records
from testbed.orchestrator.restoration import Restoration
from testbed.orchestrator.role_reports import RoleReports
from testbed.orchestrator.setup_progress import SetupProgress
from testbed.runs.ending import EndError
from testbed.runs.watching import Progress
from testbed.telemetry.records import UPDATE
from tests.metrics.running import planned


class Watcher:
    """Keeps the events that a person would see."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def progress(self, progress: Progress) -> None:
        """Ignore the progress."""

    def event(self, level: str, text: str) -> None:
        self.events.append((level, text))


class Agent:
    """Keeps the requests that an agent would carry out."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def ask(self, request: Request) -> None:
        self.requests.append(request)


class Orchestrator:
    """All that handles the messages of one run, without processes."""

    def __init__(self, directory: Path) -> None:
        plan = planned(3)
        self.began = time.monotonic()
        self.directory, self.watcher = directory, Watcher()
        self.records = Records(
            plan, directory, self.watcher, began=self.began, metrics=None, resumption=None
        )
        self.store = CheckpointStore(directory, 10, None)
        self.evaluations = Evaluations(self.records, None, None)
        self.devices = Devices(plan, self.records)
        agent: Any = Agent()
        self.devices.agent, self.requests = agent, agent.requests
        injection = Injection(
            plan.settings,
            {number: name for name, number in plan.workers.items()},
            ask=self.devices.ask,
            start=self.devices.start,
            event=self.records.event,
            log=self.records.log,
            once=self.records.deduplication,
        )
        parts: dict[str, Any] = {
            "records": self.records,
            "evaluations": self.evaluations,
            "devices": self.devices,
            "injection": injection,
        }
        restoration = Restoration(self.store, **parts)
        self.setup = SetupProgress(self.began)
        parts |= {"restoration": restoration, "setup": self.setup, "metrics": None}
        self.reports = RoleReports(**parts)
        self.events = AgentEvents(plan, read_reports=lambda: None, **parts)

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


@pytest.fixture
def orchestrator(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "run")


def test_every_kind_of_message_has_a_handler(orchestrator: Orchestrator) -> None:
    assert orchestrator.reports._handlers.keys() == set(get_args(RoleReport))
    assert orchestrator.events._handlers.keys() == set(get_args(Event))


def test_the_server_starts_when_both_libraries_and_network_are_there(
    orchestrator: Orchestrator,
) -> None:
    orchestrator.events.handle(LibrariesLoaded())
    assert orchestrator.requests == []
    orchestrator.events.handle(NetworkBuilt())
    server = StartRole("server", {"role": "server", "number": SERVER_NUMBER})
    assert orchestrator.requests == [server]


def test_the_other_devices_start_once_when_the_server_listens(orchestrator: Orchestrator) -> None:
    orchestrator.reports.handle(ServerListening())
    started = [one.device for one in orchestrator.requests if isinstance(one, StartRole)]
    assert started == ["evaluator", "worker-0", "worker-1", "worker-2"]
    orchestrator.reports.handle(ServerListening())  # a server that replaces a killed one
    assert len(orchestrator.requests) == 4


def test_regular_readings_are_no_progress_of_set_up(orchestrator: Orchestrator) -> None:
    moved = orchestrator.setup.moved
    orchestrator.events.handle(IngressRead({"time": 1.0, "bytes": 7, "frames": 1, "dropped": 0}))
    assert orchestrator.setup.moved == moved
    assert orchestrator.records.progress.wire_bytes == 7
    orchestrator.events.handle(LibrariesLoaded())
    assert orchestrator.setup.moved > moved


def test_a_device_s_own_error_is_the_reason_of_its_exit(orchestrator: Orchestrator) -> None:
    orchestrator.reports.handle(EventReported("error", "no memory", 1))
    orchestrator.events.handle(ProcessExited("worker-1", 1))
    orchestrator.events.handle(ProcessExited("worker-2", -9, memory_limit=2**20))
    assert orchestrator.records.outcome.workers_lost == 2
    first, second = (text for _, text in orchestrator.watcher.events)
    assert first.endswith("no memory")
    assert second.endswith("for using more than its 1MiB of memory")
    with pytest.raises(EndError) as ended:
        orchestrator.events.handle(ProcessExited("server", 3))
    assert ended.value.reason is not None
    assert ended.value.reason.startswith("the parameter server died: exit status 3; see ")


@pytest.mark.parametrize("host", [False, True])
def test_a_failure_of_the_host_refers_to_no_log(orchestrator: Orchestrator, host: bool) -> None:
    with pytest.raises(EndError) as ended:
        orchestrator.events.handle(RunFailed("no namespaces", host))
    assert ((ended.value.reason or "") == "no namespaces") is host


def test_an_evaluation_is_written_when_its_result_and_its_bytes_are_known(
    orchestrator: Orchestrator,
) -> None:
    orchestrator.train(1)
    orchestrator.evaluate(1)
    assert orchestrator.requests == [ReadIngress()]
    orchestrator.reports.handle(VersionEvaluated(1, 90.0, 0.5, orchestrator.began))
    orchestrator.evaluations.write_complete()
    assert orchestrator.records.outcome.accuracies == []
    moment = orchestrator.began + 2
    orchestrator.events.handle(IngressRead({"time": moment, "bytes": 900}))
    orchestrator.evaluations.write_complete()
    assert orchestrator.records.outcome.accuracies == [90.0]
    orchestrator.evaluate(1, after_restoration=True)  # on record already
    assert orchestrator.evaluations.ingress.due == 0


def test_the_first_evaluation_that_is_left_out_is_a_warning(orchestrator: Orchestrator) -> None:
    for version in (1, 2):
        orchestrator.evaluate(version)
        orchestrator.reports.handle(EvaluationLeftOut(version, "no room"))
    orchestrator.reports.handle(EvaluationLeftOut(3, "no room"))  # it was not due
    assert list(orchestrator.evaluations.left_out) == [1, 2]
    assert len(orchestrator.watcher.events) == 1


def test_a_server_under_the_wall_clock_goes_back_to_its_checkpoint(
    orchestrator: Orchestrator,
) -> None:
    orchestrator.train(1)
    orchestrator.reports.handle(CheckpointBegun(1, orchestrator.began + 1))
    assert orchestrator.requests == [ReadIngress()]
    orchestrator.train(3)
    orchestrator.evaluate(2)
    orchestrator.reports.handle(WorkerSuspected(0, 30.0, 40.0, 3))
    orchestrator.reports.handle(ServerRestored(1, [0, 1, 2]))
    assert orchestrator.records.outcome.updates == 1
    assert orchestrator.evaluations.ingress.due == 0
    assert "back from the checkpoint of update 1; 3 updates behind it are lost" in (
        orchestrator.logged()
    )
    assert orchestrator.evaluations.ingress.forgotten["payload_bytes"] == 300


def test_the_final_parameters_arrive_in_parts(orchestrator: Orchestrator) -> None:
    vector = np.arange(4, dtype=np.float32)
    raw = vector.tobytes()
    orchestrator.reports.handle(FinalParameters(0, raw[:7]))
    orchestrator.reports.handle(FinalParameters(7, raw[7:]))
    orchestrator.reports.handle(ServerFinished(4, 300, 400, {}))
    assert orchestrator.records.finished
    assert orchestrator.records.outcome.parameters_sha256 == (
        orchestrator.records.log.parameters(vector)
    )
    assert orchestrator.evaluations.ingress.total == {"payload_bytes": 300, "message_bytes": 400}

"""The orchestrator's handling of each event of the agent."""

from pathlib import Path
from typing import get_args

import pytest

from testbed.device_names import SERVER_NUMBER
from testbed.messages.agent_reports import (
    Event,
    HostLost,
    IngressRead,
    LibrariesLoaded,
    NetworkBuilt,
    ProcessExited,
    RunFailed,
)
from testbed.messages.reports import EventReported
from testbed.messages.requests import GiveUpDevices, StartRole
from testbed.runs.ending import EndError
from tests.orchestrator.handlers import Orchestrator


@pytest.fixture
def orchestrator(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "run")


def test_every_kind_of_event_has_a_handler(orchestrator: Orchestrator) -> None:
    assert orchestrator.events._handlers.keys() == {*get_args(Event), type(None)}


def test_the_server_starts_when_both_libraries_and_network_are_there(
    orchestrator: Orchestrator,
) -> None:
    orchestrator.events.handle(LibrariesLoaded())
    assert orchestrator.requests == []
    orchestrator.events.handle(NetworkBuilt())
    server = StartRole("server", {"role": "server", "number": SERVER_NUMBER})
    assert orchestrator.requests == [server]


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


def test_a_run_goes_on_without_a_host_once_it_trains(orchestrator: Orchestrator) -> None:
    lost = HostLost("its agent died")
    with pytest.raises(EndError) as ended:
        orchestrator.events.handle(lost, "c")
    assert ended.value.reason == "host c is lost: its agent died"
    for worker in ("worker-0", "worker-1", "worker-2"):
        orchestrator.devices.start(worker, {"role": "worker", "number": int(worker[-1])})
    orchestrator.train(2)
    orchestrator.events.handle(lost, "c")
    assert orchestrator.requests[-1] == GiveUpDevices(["worker-1", "worker-2"])
    assert orchestrator.records.outcome.workers_lost == 2
    assert orchestrator.devices.liveness.is_alive("worker-0")
    assert not orchestrator.devices.liveness.is_alive("worker-1")
    said = [text for _, text in orchestrator.watcher.events]
    assert "host c is lost: its agent died; 2 devices died with it" in said

"""An unexpected exception in the orchestrator or the simulator ends the run as failed."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest
import yaml

from testbed.errors import RunError
from testbed.experiment.load import load
from testbed.nodes import control_group, run_names
from testbed.orchestrator.emulated_run import EmulatedRun
from testbed.planning.plan import Plan, plan
from testbed.roles.server.wall_server import WallServer
from testbed.runs.ending import signals
from testbed.runs.planned_run import PlannedRun
from testbed.runs.watching import AnyProgress, Progress
from testbed.simulation.simulated_run import SimulatedRun

SPEC = {
    "name": "ends",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 100_000},
    "algorithms": ["asgd"],
    "devices": {"workers": 3},
    "waiting": {"distribution": "constant", "mean": "10ms"},
    "evaluation": {"every": 50},
}


class Impatient:
    """A watcher that raises an unexpected exception, during training and again at the end."""

    def __init__(self) -> None:
        self.agents: list[int] = []

    def progress(self, progress: AnyProgress) -> None:
        self.agents += [
            child.pid
            for child in psutil.Process().children()
            if child.cmdline()[:1] == [run_names.AGENT]
        ]
        if isinstance(progress, Progress) and progress.updates >= 100:
            raise KeyError("something of the testbed's own")

    def event(self, level: str, text: str) -> None:
        """Ignore the event."""


def _plan(folder: Path, *overrides: str) -> Plan:
    spec = folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(SPEC))
    (one,) = plan(load(spec, overrides, None))
    return one


def assert_failed(directory: Path, reason: str, traceback: str) -> None:
    for name in ("manifest", "summary"):
        content = json.loads((directory / f"{name}.json").read_text())
        assert content["ended"] == "failed"
        assert content["reason"].startswith(reason)
        assert traceback in content["reason"]
    text = (directory / traceback).read_text()
    assert "Traceback" in text
    assert "something of the testbed's own" in text


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_an_exception_in_the_orchestrator_ends_the_run_as_failed(tmp_path: Path) -> None:
    watcher, directory = Impatient(), tmp_path / "run"
    run = EmulatedRun(PlannedRun(_plan(tmp_path), directory, watcher, time.monotonic()))
    with signals() as wake_up:
        summary = run.execute(wake_up)
    reason = 'the orchestrator: KeyError: "something of the testbed\'s own"'
    assert summary["reason"].startswith(reason)
    assert summary["updates"] >= 100
    assert_failed(directory, reason, "processes.log")
    agents = set(watcher.agents)
    assert agents
    assert not [pid for pid in agents if Path(f"/proc/{pid}").exists() and _is_ours(pid)]
    assert not [group for pid in agents for group in control_group.made_by(pid)]


def talkative(server: WallServer) -> None:
    """Take the place of ``WallServer.serve``, in this process and those forked from it."""
    for number in range(20):
        server.host.report.event("info", f"event {number}")
    raise RunError("the reason")


class Slow:
    """A watcher that takes its time, so that messages wait for the orchestrator."""

    def progress(self, progress: AnyProgress) -> None:
        time.sleep(0.1)

    def event(self, level: str, text: str) -> None:
        """Ignore the event."""


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_a_server_s_last_report_is_read_before_its_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent reports the exit over another channel, which may be read first."""
    monkeypatch.setattr(WallServer, "serve", talkative)
    run = EmulatedRun(PlannedRun(_plan(tmp_path), tmp_path / "run", Slow(), time.monotonic()))
    with signals() as wake_up:
        summary = run.execute(wake_up)
    assert summary["reason"].startswith("the parameter server died: the reason; see ")


def _is_ours(pid: int) -> bool:
    return os.getpid() in [parent.pid for parent in psutil.Process(pid).parents()]


def test_an_exception_in_the_simulator_ends_the_run_as_failed(tmp_path: Path) -> None:
    one = _plan(tmp_path, "engine=simulation", "clock=virtual")
    directory = tmp_path / "run"
    with signals() as wake_up:
        summary = SimulatedRun(PlannedRun(one, directory, Impatient(), time.monotonic())).execute(
            wake_up
        )
    reason = 'the simulator: KeyError: "something of the testbed\'s own"'
    assert summary["reason"].startswith(reason)
    assert_failed(directory, reason, "traceback.txt")

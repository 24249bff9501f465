"""Runs that end early: what the run directory says afterwards, and that nothing is left on the host."""

import json
import signal
from collections.abc import Callable

import psutil
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import ENDLESS, CommandLine, Started, until

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]


def assert_ended(started: Started, ended: str, reason: str) -> None:
    """Assert that the command and the run's records say how the run ended."""
    status = {"stopped by SIGINT": 130, "stopped by SIGTERM": 143}.get(reason, 1)
    assert started.wait() == status, started.said
    assert f"testbed: asgd {ended}: {reason}" in started.said
    assert "Traceback" not in started.said
    assert "Traceback" not in (started.run_directory / "processes.log").read_text()
    for name in ("manifest", "summary"):
        record = started.record(name)
        assert record["ended"] == ended
        assert record["reason"].startswith(reason)
    assert started.events()[-1]["event"].startswith(reason)


@pytest.mark.parametrize("phase", ["loading", "training"])
def test_ctrl_c_ends_the_run_as_interrupted(command: CommandLine, phase: str) -> None:
    started = command.start_run(ENDLESS, report=True)
    if phase == "training":
        started.until_training()
    else:
        started.until(lambda: "asgd: loading" in started.said, "it loads")
        started.until(lambda: started.process.children(recursive=True)[1:], "a fork server")
    traces = started.traces()
    started.interrupt()
    traces.processes = traces.processes[1:]  # the command itself still writes the report
    traces.assert_gone()
    assert_ended(started, "interrupted", "stopped by SIGINT")
    if phase == "training":
        # Evaluated updates were applied, and applied updates are recorded.
        updates = pq.read_table(started.run_directory / "updates.parquet")
        evaluated = int(started.curve().splitlines()[-1].split(",")[0])
        assert started.record("summary")["updates"] == updates.num_rows >= evaluated >= 10
        assert (started.run_directory.parent / "report.html").exists()
        used = pq.read_table(started.run_directory / "utilisation.parquet").to_pylist()
        # The command may have ended before the first sample of its training.
        assert {row["bytes_source"] for row in used} <= {"sampled", None}
        assert [row["device"] for row in used][-1] == "server"


def test_sigterm_ends_the_run_as_interrupted(command: CommandLine) -> None:
    started = command.start_run(ENDLESS)
    started.until_training()
    traces = started.traces()
    started.process.terminate()
    assert_ended(started, "interrupted", "stopped by SIGTERM")
    traces.assert_gone()


@pytest.mark.parametrize(
    ("victim", "reason"),
    [
        (lambda run: run.agent, "the agent of the run died"),
        (lambda run: run.fork_server, "the fork server ended"),
        (lambda run: run.nodes()["server"], "the parameter server died: killed by SIGKILL"),
        (lambda run: run.nodes()["evaluator"], "the evaluator died: killed by SIGKILL"),
    ],
    ids=["agent", "fork server", "server", "evaluator"],
)
def test_a_run_fails_when_a_process_that_it_needs_is_killed(
    command: CommandLine, victim: Callable[[Started], psutil.Process], reason: str
) -> None:
    started = command.start_run(ENDLESS)
    started.until_training()
    traces = started.traces()
    assert len(traces.processes) == 1 + 3 + 2 + 5
    victim(started).kill()
    assert_ended(started, "failed", reason)
    traces.assert_gone()
    assert command.do("clean").returncode == 0


def test_a_run_whose_orchestrator_was_killed_shows_as_interrupted(command: CommandLine) -> None:
    started = command.start_run(ENDLESS)
    started.until_training()
    traces = started.traces()
    started.process.kill()
    started.wait()
    traces.assert_gone()
    assert started.record("manifest")["ended"] == "running"
    shown = command.do("show", "--json")
    assert shown.returncode == 0, shown.stderr
    (run,) = json.loads(shown.stdout)
    assert (run["ended"], run["reason"]) == ("interrupted", "the orchestrator was killed")
    assert run["updates"] >= 10
    assert run["ingress"]["payload_bytes"] > 0


def test_a_run_goes_on_without_a_killed_worker(command: CommandLine) -> None:
    started = command.start_run(ENDLESS | {"training": {"updates": 60}})
    started.until_training()
    traces = started.traces()
    started.nodes()["worker-3"].kill()
    assert started.wait() == 0, started.said
    traces.assert_gone()
    summary = started.record("summary")
    assert (summary["ended"], summary["updates"]) == ("completed", 60)
    assert summary["workers_lost"] == 1
    deaths = [event for event in started.events() if "died" in event["event"]]
    assert [(e["device"], e["level"]) for e in deaths] == [("worker-3", "warning")]
    assert "worker-3 died: killed by SIGKILL" in started.said


def test_a_run_fails_when_all_workers_are_killed(command: CommandLine) -> None:
    started = command.start_run(ENDLESS, report=True)
    started.until_training()
    traces = started.traces()
    for name, node in started.nodes().items():
        if name.startswith("worker"):
            node.kill()
    assert_ended(started, "failed", "every worker was lost after ")
    traces.assert_gone()
    summary = started.record("summary")
    assert summary["workers_lost"] == 5
    assert summary["updates"] >= 10
    assert (started.run_directory.parent / "report.html").exists()


def test_clean_removes_only_control_groups_of_killed_runs(
    command: CommandLine, nobody: CommandLine
) -> None:
    started = command.start_run(ENDLESS)
    started.until_training()
    traces = started.traces()
    if not traces.groups:
        pytest.skip("this user may write no control group, so that nothing can be left over")
    assert command.do("clean").returncode == 0
    assert all(group.exists() for group in traces.groups)
    assert all(node.is_running() for node in traces.processes)
    agent = started.agent
    started.process.send_signal(signal.SIGSTOP)  # so that neither sees the other die
    agent.kill()
    started.process.kill()
    started.wait()
    until(lambda: len(traces.left()) == len(traces.groups), "the control group alone is left")
    refused = nobody.do("clean")
    assert refused.returncode == 1
    for group in traces.groups:
        text = f"not removed: {group} (Permission denied: do it as root)"
        assert text in " ".join(refused.stderr.split())
    cleaned = command.do("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    for group in traces.groups:
        assert f"removed {group}" in cleaned.stdout
    traces.assert_gone()

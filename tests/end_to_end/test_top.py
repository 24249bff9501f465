"""``testbed top`` shows running runs, once and live, and leaves them alone."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.end_to_end.conftest import ENDLESS, CommandLine, Started, until
from tests.end_to_end.terminal import read_until, terminal

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]


def row(command: CommandLine, run: Started) -> dict[str, object]:
    """Return what ``testbed top`` says of a run; other runs of this host may be there, too."""
    shown = json.loads(command.do("top", "--json").stdout)
    found = [one for one in shown if one["process"] == run.process.pid]
    return found[0] if found else {}


def test_a_run_is_shown_from_its_set_up_to_its_end(command: CommandLine) -> None:
    faults = [
        {"who": {"devices": ["worker-1"]}, "when": {"iteration": 20}, "how": "kill"},
        {"who": {"devices": ["worker-2"]}, "when": {"iteration": 30}, "how": "stop-network"},
    ]
    run = command.start_run(ENDLESS | {"faults": faults})
    first = until(lambda: row(command, run), "the run is shown")
    assert first["ended"] is False
    run.until_training()
    until(lambda: row(command, run)["faulted"] == 2, "both faults")
    shown = row(command, run)
    assert shown["phase"] == "training" and shown["all_updates"] == 100_000
    assert (shown["engine"], shown["clock"], shown["workers"]) == ("emulation", "wall", 5)
    assert shown["alive"] == 4
    assert isinstance(shown["updates"], int) and shown["updates"] >= 30
    assert isinstance(shown["accuracy"], float) and shown["accuracy"] > 10
    assert isinstance(shown["update_rate"], float) and shown["update_rate"] > 1
    # Full gradients of the model: what an update brings in does not change.
    message = float(str(shown["ingress_rate"])) / shown["update_rate"]
    assert 430_000 < message < 445_000  # 109,386 numbers of four bytes
    table = command.do("top").stdout  # no terminal: once
    (line,) = (one for one in table.splitlines() if f" {run.process.pid} " in one)
    assert "training" in line and "of 100,000" in line and "4 of 5" in line
    run.interrupt()
    assert run.wait() == 130
    assert row(command, run) == {}


def test_a_simulation_is_shown(command: CommandLine) -> None:
    run = command.start_run(ENDLESS, "--set", "engine=simulation", "--set", "clock=virtual")
    run.until_training()
    shown = row(command, run)
    assert (shown["engine"], shown["phase"]) == ("simulation", "training")
    assert isinstance(shown["updates"], int) and shown["updates"] >= 10


def test_a_terminal_is_refreshed_in_place_until_the_person_leaves(command: CommandLine) -> None:
    run = command.start_run(ENDLESS)
    run.until_training()
    name = Path(run.run_directory).parts[-2]
    with terminal(command.folder, "top", "--every", "0.2") as (own, wait):
        shown = read_until(own, name)
        assert "\x1b[?1049h" in shown  # the other screen of the terminal
        first = re.search(r"(\d[\d,]*) of 100,000", read_until(own, "of 100,000"))
        read_until(own, "training")
        assert first and name
        run.interrupt()
        assert run.wait() == 130
        read_until(own, "interrupted")
        os.write(own, b"q")
        assert "\x1b[?1049l" in read_until(own, "\x1b[?1049l")
        assert wait() == 0


def test_ctrl_c_leaves_as_q_does(command: CommandLine) -> None:
    with terminal(command.folder, "top") as (own, wait):
        read_until(own, "q leaves")
        os.write(own, b"\x03")
        read_until(own, "\x1b[?1049l")
        assert wait() == 0


def test_a_terminal_is_restored_after_a_signal(command: CommandLine) -> None:
    with terminal(command.folder, "top") as (own, wait):
        read_until(own, "q leaves")
        os.kill(wait.process, signal.SIGTERM)
        read_until(own, "\x1b[?1049l")
        assert wait() == 143

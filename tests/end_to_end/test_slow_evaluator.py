"""An evaluator that is too slow: evaluations wait or are left out, but no worker is lost."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.conftest import SMALL, CommandLine, Started

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

# 200 snapshots of 437 kB, over at least the 6 s in which the evaluator is found and stopped.
OFTEN: dict[str, Any] = SMALL | {
    "waiting": {"distribution": "constant", "mean": "150ms"},
    "evaluation": {"every": 1},
    "traffic": {"capture": False},
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A function that mounts a file system of the given size and returns its folder."""
    made: list[Path] = []

    def make(size: str) -> Path:
        folder = tmp_path / f"disk-{size}"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        made.append(folder)
        return folder

    yield make
    for folder in made:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def train_without_it(started: Started) -> psutil.Process:
    """Stop the evaluator, wait until training is over, and return the evaluator."""
    started.until(lambda: len(started.curve().splitlines()) > 1, "an evaluation")
    evaluator = started.nodes()["evaluator"]
    evaluator.suspend()
    started.until(lambda: "200/200 updates" in started.said, "the last update")
    return evaluator


def evaluated(started: Started) -> list[int]:
    return [int(line.partition(",")[0]) for line in started.curve().splitlines()[1:]]


def test_a_full_tmp_costs_no_worker_its_connection(
    command_with: Callable[..., CommandLine], small_disk: Callable[[str], Path]
) -> None:
    started = command_with(TMPDIR=str(small_disk("8m"))).start_run(OFTEN)
    train_without_it(started).resume()
    assert started.wait() == 0, started.said
    summary = started.record("summary")
    assert (summary["ended"], summary["updates"], summary["workers_lost"]) == ("completed", 200, 0)
    assert evaluated(started) == list(range(201))
    assert "evaluations_left_out" not in summary
    told = [event["event"] for event in started.events() if event["level"] == "warning"]
    assert any("evaluations wait" in text for text in told)
    assert not any("connection" in text for text in told)


def test_a_full_run_directory_costs_evaluations_and_nothing_else(
    command: CommandLine, small_disk: Callable[[str], Path]
) -> None:
    command.out = small_disk("96m")
    started = command.start_run(OFTEN)
    train_without_it(started).resume()
    assert started.wait() == 0, started.said
    summary, manifest = started.record("summary"), started.record("manifest")
    assert (summary["ended"], summary["updates"], summary["workers_lost"]) == ("completed", 200, 0)
    left_out = summary["evaluations_left_out"]
    curve = evaluated(started)
    assert left_out["count"] == manifest["evaluations_left_out"] == 201 - len(curve) > 0
    assert curve[-1] == 200  # the final accuracy is known
    assert summary["final_accuracy"] is not None
    told = [event["event"] for event in started.events() if event["level"] == "warning"]
    texts = [text for text in told if "evaluations wait" not in text]
    assert "the evaluator cannot follow" in texts[0]
    assert "67 MB are left to the rest of the run" in texts[0]
    assert texts[-1].startswith(f"{left_out['count']} evaluations were left out, of updates ")
    shown = " ".join(command.do("show", started.run_directory).stdout.split())
    assert f"{left_out['count']}, of updates" in shown


_FORGETFUL = """
from testbed import channel

send = channel.Channel.send

def forgetful(self, fields, *others, **more):
    if fields.get("kind") != "version_evaluated" or fields["version"] not in (50, 100):
        send(self, fields, *others, **more)

channel.Channel.send = forgetful
"""
"""A plug-in: the process that plans, from which the evaluator is forked, executes it."""


def test_evaluations_that_are_never_reported_fail_the_run(
    command: CommandLine,
) -> None:
    """Every device ends well, so only the missing evaluations show that they never come."""
    (command.folder / "forgetful.py").write_text(_FORGETFUL)
    started = command.start_run(SMALL | {"plugins": ["forgetful.py"]})
    assert started.wait() == 1, started.said
    summary = started.record("summary")
    assert (summary["ended"], summary["updates"]) == ("failed", 200)
    reason = "the evaluator has ended without a result of the updates 50, 100"
    assert summary["reason"] == started.record("manifest")["reason"] == reason
    assert evaluated(started) == [0, 150, 200]

"""Sweeps as a person runs them: every run once, failures and interruptions, and one table of all."""

import csv
import json
import os
import signal
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_endings import STATES
from tests.end_to_end.conftest import CommandLine, until
from tests.sweeps.conftest import SWEEP

SLOW = """\
import time
from dataclasses import dataclass

from testbed.durations import Law


@dataclass(frozen=True, slots=True)
class Slow(Law):
    def sample(self, stream):
        time.sleep(0.004)
        return self.mean
"""
"""A constant time, which takes some of a person's, too, while the processors are left to others."""
ONE = ("--json", "--no-figures", "--at-once", "1")
"""Options of a sweep that draws nothing, and whose runs come one after the other."""


def test_every_run_is_made_once_and_is_the_one_that_a_person_would_make(
    file: Path, command: CommandLine, tmp_path: Path
) -> None:
    started = command.start("sweep", file, "--json")
    assert started.wait(120) == 0, started.said
    told = json.loads(started.output.read_text())
    assert (told["runs"], told["complete"], told["failed"]) == (6, 6, {})  # asgd has no ratio
    assert "6 runs, 0 of them complete" in started.said
    assert " altogether" in started.said
    table = pq.read_table(told["table"][0])
    assert table.column_names[:5] == [
        "run",
        "algorithm",
        "label",
        "seed",
        "algorithms.adacomp.ratio",
    ]
    rows = table.to_pylist()
    assert len(rows) == 8
    assert [row["algorithm"] for row in rows].count("asgd") == 4
    assert {row["ended"] for row in rows} == {"completed"}
    with Path(told["table"][1]).open(newline="", encoding="utf-8") as lines:
        assert [row["parameters_sha256"] for row in csv.DictReader(lines)] == [
            row["parameters_sha256"] for row in rows
        ]
    # A run by itself ends with the same parameters.
    chosen = next(r for r in rows if r["label"] == "adacomp-0.1" and r["seed"] == 2)
    alone = command.start(
        "simulate", file, "--set", "sweep=null", "--set", "algorithms.adacomp.ratio=0.1",
        "--seed", "2", "--no-report",
    )  # fmt: skip
    assert alone.wait(60) == 0, alone.said
    (summary,) = tmp_path.glob("runs/small/*-2/adacomp-0.1/summary.json")
    assert json.loads(summary.read_bytes())["parameters_sha256"] == chosen["parameters_sha256"]
    names = {Path(path).name for path in told["figures"]}
    assert {"by-algorithms-adacomp-ratio.svg", "accuracy-versus-ingress.svg"} <= names
    # A legend has the keys that make other runs of the algorithm, and ASGD has no ratio.
    (curves,) = (Path(path) for path in told["figures"] if path.endswith("versus-ingress.svg"))
    assert "asgd (2 seeds)" in curves.read_text()
    assert "adacomp, ratio 0.01 (2 seeds)" in curves.read_text()
    # Started again it makes nothing anew; a new value only adds its runs.
    before = {
        path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/small/sweep/*/spec.yaml")
    }
    longer = command.start("sweep", file, *ONE, "--set", "sweep.seed=[1, 2, 3]")
    assert longer.wait(120) == 0, longer.said
    assert "9 runs, 6 of them complete" in longer.said
    after = {
        path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/small/sweep/*/spec.yaml")
    }
    assert len(after) == 9
    assert before.items() <= after.items()


def test_a_run_that_fails_does_not_end_the_others(
    file: Path, command: CommandLine, tmp_path: Path
) -> None:
    # No update is possible any more once both workers are dead.
    dead = "[{when: {time: 100ms}, who: {number: 2}, how: kill}]"
    text = SWEEP.replace("algorithms.adacomp.ratio: [0.1, 0.01]", f"faults: [[], {dead}]")
    file.write_text(text, encoding="utf-8")
    started = command.start("sweep", file, *ONE)
    assert started.wait(120) == 1, started.said
    told = json.loads(started.output.read_text())
    assert (told["runs"], told["complete"], len(told["failed"])) == (8, 4, 4)
    assert "no further update was possible" in started.said
    assert "4 of 8 runs failed" in started.said
    rows = pq.read_table(told["table"][0]).to_pylist()
    assert [row["ended"] for row in rows].count("failed") == 4


def test_a_disturbed_run_is_made_again_and_one_that_diverged_is_kept(
    file: Path, command: CommandLine, tmp_path: Path
) -> None:
    arguments = ("sweep", file, *ONE)
    assert command.start(*arguments).wait(120) == 0
    disturbed, diverged, *_ = sorted(
        path.parent for path in tmp_path.glob("runs/small/sweep/*/manifest.json")
    )
    digest = RecordedRun.load(disturbed).summary.parameters_sha256
    for directory, ended in ((disturbed, "disturbed"), (diverged, "diverged")):
        for path in (directory / "manifest.json", directory / "summary.json"):
            content = json.loads(path.read_bytes()) | {"ended": ended, "reason": "as it was"}
            path.write_text(json.dumps(content), encoding="utf-8")
    again = command.start(*arguments)
    assert again.wait(120) == STATES["diverged"].status, again.said
    assert "6 runs, 5 of them complete" in again.said
    assert f"{disturbed.name} was disturbed and is made again" in again.said
    assert RecordedRun.load(disturbed).ended == "completed"
    assert RecordedRun.load(disturbed).summary.parameters_sha256 == digest
    assert RecordedRun.load(diverged).summary.reason == "as it was"


@pytest.mark.timeout(600)
def test_after_ctrl_c_and_a_kill_the_sweep_ends_complete(
    file: Path, command: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "runs" / "small" / "sweep"
    (tmp_path / "slow.py").write_text(SLOW)
    values = (
        *("plugins=[slow.py]", "waiting.distribution=slow:Slow", "training.updates=400"),
        *("checkpoints.every=50", "evaluation.every=200"),
    )
    longer = ("--no-figures", *(word for value in values for word in ("--set", value)))

    def complete() -> int:
        return sum(
            json.loads(path.read_bytes())["ended"] == "completed"
            for path in folder.glob("*/manifest.json")
        )

    for number in (signal.SIGINT, signal.SIGKILL):
        reached = complete()
        started = command.start("sweep", file, "--json", *longer)
        until(lambda before=reached: complete() > before, "one more run", 120)  # type: ignore[misc]
        until(lambda: len(list(folder.glob("*/checkpoints/*"))) > 0, "a checkpoint", 120)
        # A worker has children of its own for a moment: `git` says which commit it runs.
        workers = started.process.children()
        assert len(workers) == min(2, len(os.sched_getaffinity(0)))
        started.process.send_signal(number)
        status = started.wait(60)
        assert status == (130 if number == signal.SIGINT else -signal.SIGKILL)
        # One that still imports finds out afterwards, half a minute later on a busy host.
        psutil.wait_procs(workers, timeout=60)
        assert not any(one.is_running() for one in workers)
        if number == signal.SIGINT:
            assert "goes on where it stopped" in started.said
            assert "stopped by SIGINT" in started.said and "SIGTERM" not in started.said
    started = command.start("sweep", file, "--json", *longer)
    assert started.wait(240) == 0, started.said
    told = json.loads(started.output.read_text())
    assert told["complete"] == told["runs"] == 6
    assert any(
        RecordedRun.load(path.parent).manifest.resumed for path in folder.glob("*/manifest.json")
    )


def test_two_sweeps_at_once_do_not_touch_each_others_runs(file: Path, command: CommandLine) -> None:
    first = command.start("sweep", file, "--set", "training.updates=100000")
    first.until(lambda: "small: " in first.said, "the first run")
    second = command.start("sweep", file, "--set", "training.updates=100000")
    assert second.wait(60) == 1
    assert "another process is carrying out runs in" in second.said
    first.interrupt()
    assert first.wait(60) == 130


def test_only_the_plan(file: Path, command: CommandLine, tmp_path: Path) -> None:
    started = command.start("sweep", file, "--plan")
    assert started.wait(60) == 0
    assert started.output.read_text().splitlines()[1] == ("adacomp, seed 1, ratio 0.1")
    assert not (tmp_path / "runs").exists()
    wrong = command.start("run", file)
    assert wrong.wait(60) == 2
    assert "`testbed sweep" in wrong.said

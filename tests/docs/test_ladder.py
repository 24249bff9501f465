"""The table of the ladder of encodings: each row agrees with its run's files."""

import csv
from pathlib import Path

import pytest

from bench import ladder
from bench.ladder import Step
from testbed.results.reading.recorded_run import RecordedRun
from tests.metrics.running import planned, simulated


def test_a_step_agrees_with_the_files_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, _ = simulated(
        planned(4, training={"updates": 200}, evaluation={"every": 20}, algorithms=["asgd"]),
        tmp_path,
    )
    with (directory / "curve.csv").open(newline="") as file:
        curve = list(csv.DictReader(file))
    within_reach = float(curve[4]["accuracy"])
    monkeypatch.setattr(ladder, "ACCURACY", within_reach)
    step = Step.of(RecordedRun.load(directory))
    first = next(row for row in curve if float(row["accuracy"]) >= within_reach)
    assert (step.label, step.seed, step.updates) == ("asgd", 1, 200)
    assert step.payload == int(curve[-1]["payload_bytes"]) / 200 == 109_386 * 4
    assert (step.updates_to, step.wire_to) == (int(first["iteration"]), int(first["wire_bytes"]))
    assert step.best == max(float(row["accuracy"]) for row in curve)


def test_ratios_use_only_the_asgd_runs_that_reach_the_accuracy() -> None:
    steps = [
        Step("asgd", 1, 400, 4e5, 5e5, 100, 40_000_000, 97.5),
        Step("asgd", 2, 400, 4e5, 5e5, None, None, 96.5),
        Step("asgd", 3, 400, 4e5, 5e5, 300, 80_000_000, 97.25),
        Step("small", 1, 1200, 1000, 1500.4, 1000, 1_500_000, 98.125),
    ]
    assert ladder.table(steps)[2:] == [
        "| asgd | 1 | 400,000 | 500,000 | 400 | 100 | 40.0 MB | 1.50 | 97.50 |",
        "| asgd | 2 | 400,000 | 500,000 | 400 | — | — | — | 96.50 |",
        "| asgd | 3 | 400,000 | 500,000 | 400 | 300 | 80.0 MB | 0.75 | 97.25 |",
        "| small | 1 | 1,000 | 1,500 | 1,200 | 1,000 | 1.50 MB | 40 | 98.12 |",
    ]

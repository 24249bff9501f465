"""Sweeps from a program: the results of all combinations, the errors, and Ctrl-C."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.errors import RunError, SpecError
from testbed.results.reading.recorded_run import RecordedRun
from tests.end_to_end.conftest import until
from tests.library.conftest import SMALL, Simulated

KEYS: dict[str, list[Any]] = {"seed": [1, 2], "algorithms.adacomp.ratio": [0.01, 0.1]}
LONG = """
import sys, testbed
experiment = testbed.Experiment.parse(sys.stdin.read()).with_(engine="simulation")
try:
    testbed.sweep(experiment, {"training.updates": [100_000, 200_000]}, out=sys.argv[1])
except KeyboardInterrupt as interrupt:
    print(interrupt)
"""


def test_a_sweep_has_a_table_and_the_runs_that_the_library_makes_alone(
    simulated: Simulated, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    experiment = testbed.Experiment.parse(SMALL).with_(engine="simulation")
    exclude = [{"seed": 2, "algorithms.adacomp.ratio": 0.1}]
    swept = testbed.sweep(experiment, KEYS, exclude=exclude, out=tmp_path)
    assert "5 runs, 0 of them complete" in capfd.readouterr().err
    table = swept.table()
    assert list(table.columns[:5]) == [
        "run", "algorithm", "label", "seed", "algorithms.adacomp.ratio",
    ]  # fmt: skip
    assert len(table) == len(swept) == 6
    assert len(swept.runs) == 5  # asgd has no ratio
    of_asgd = table[(table.algorithm == "asgd") & (table["algorithms.adacomp.ratio"] == 0.01)]
    found = swept.over_seeds().loc[("asgd", 0.01), "final_accuracy"]
    assert found["count"] == 2
    assert found["mean"] == pytest.approx(of_asgd.final_accuracy.mean())
    assert found["std"] == pytest.approx(abs(of_asgd.final_accuracy.diff().iloc[1]) / 2**0.5)
    alike = swept.where("adacomp", seed=1, ratio=0.01).only
    alone = simulated.runs["adacomp-0.01"]
    assert alike.summary.parameters_sha256 == alone.summary.parameters_sha256
    assert alike.curve().equals(alone.curve())
    for wrong, told in (({"ration": 1}, "'ration' is no swept key"), ({"seed": 3}, "with seed 3")):
        with pytest.raises(SpecError, match=told):
            swept.where(**wrong)
    # The same call makes nothing anew, and a file says the same as an experiment and keys.
    path = tmp_path / "small.yaml"
    section = "sweep: {seed: [1], algorithms.adacomp.ratio: [0.01, 0.1]}\n"
    path.write_text(f"{SMALL}engine: simulation\n{section}", encoding="utf-8")
    again = testbed.sweep(path, {"seed": [1, 2]}, exclude=exclude, out=tmp_path, progress=False)
    assert again.arrow().equals(swept.arrow())
    assert capfd.readouterr().err == ""


def test_runs_that_fail_are_told_and_may_be_returned(tmp_path: Path) -> None:
    dead = [{"when": {"time": "20ms"}, "who": {"number": 3}, "how": "kill"}]
    failing = testbed.Experiment.parse(SMALL).with_(engine="simulation", algorithms=["asgd"])
    alone: dict[str, Any] = {"out": tmp_path, "progress": False, "at_once": 1}
    with pytest.raises(RunError, match=r"1 of 2 runs failed; asgd, faults .* no further update"):
        testbed.sweep(failing, {"faults": [[], dead]}, **alone)
    swept = testbed.sweep(failing, {"faults": [[], dead]}, check=False, **alone)
    assert [row["ended"] for row in swept.arrow().to_pylist()] == ["completed", "failed"]
    [whole] = swept.over_seeds().updates.to_dict("records")
    assert (whole["mean"], whole["count"]) == (failing.spec.training.updates, 1)


def test_a_wrong_key_is_refused_before_anything_starts(tmp_path: Path) -> None:
    experiment = testbed.Experiment.parse(SMALL)
    with pytest.raises(SpecError, match="has no sweep section"):
        testbed.sweep(experiment, out=tmp_path)
    with pytest.raises(SpecError, match=r"sweep: trainig.updates: 3: trainig: unknown key"):
        testbed.sweep(experiment, {"trainig.updates": [3]}, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_a_program_ends_the_runs_that_are_going_on(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", LONG, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert started.stdin is not None
    started.stdin.write(SMALL)
    started.stdin.close()
    started.stdin = None
    until(lambda: list(tmp_path.glob("small/sweep/*/curve.csv")), "a run", 120)
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=60)
    assert started.returncode == 0
    assert "interrupted; 0 of 4 runs are complete" in said
    begun = list(tmp_path.glob("small/sweep/*/manifest.json"))
    assert begun
    assert {RecordedRun.load(path.parent).ended for path in begun} == {"interrupted"}

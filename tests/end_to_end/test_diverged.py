"""Runs that diverge: one word for it in every output, and an exit status that is not 0."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import testbed
from testbed.results.reading.curves import curves_of
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.outcome import RunOutcome
from testbed.telemetry.entries import EvaluationMade
from tests.end_to_end.conftest import ENGINES, SMALL, CommandLine

HOT = {"name": "asgd", "label": "hot", "learning_rate": 1e30}
MILD = {"name": "asgd", "label": "mild", "learning_rate": 0.05}
SPEC: dict[str, Any] = SMALL | {
    "training": {"updates": 60, "batch_size": 8},
    "algorithms": [HOT, MILD],
    "devices": {"workers": 3},
    "evaluation": {"every": 20},
}
STATUS = 3


def words(said: str, label: str) -> list[str]:
    """Return the words of the first line of a table that names a run."""
    return next(line.split() for line in said.splitlines() if label in line.partition("  ")[0])


@pytest.mark.real
@pytest.mark.parametrize("engine", ["wall", "simulated"])
def test_every_command_calls_a_run_that_diverged_so(engine: str, command: CommandLine) -> None:
    spec = command.spec(SPEC | ENGINES[engine])
    started = command.start("run", spec, "--out", command.out)
    assert started.wait(240) == STATUS, started.said
    said = started.output.read_text()
    assert words(said, "hot")[2] == "diverged"
    assert words(said, "mild")[2] == "completed"
    assert "hot: diverged (the loss is not a finite number from update " in said
    (sentence,) = (line for line in started.said.splitlines() if line.startswith("testbed: "))
    assert sentence.startswith("testbed: hot diverged: the loss is not a finite number")
    (directory,) = command.out.glob("*/*/hot")
    for name in ("manifest", "summary"):
        written = json.loads((directory / f"{name}.json").read_bytes())
        assert written["ended"] == "diverged"
        assert "not a finite number" in written["reason"]
    assert (written["updates"], written["final_loss"]) == (60, None)
    assert not (directory / "checkpoints").exists()
    assert {words(command.do("ls").stdout, label)[1] for label in ("hot", "mild")} == {
        "diverged",
        "completed",
    }
    assert words(command.do("compare", SPEC["name"]).stdout, "hot")[2] == "diverged"
    assert "state       diverged: the loss is not a finite number" in command.do("show").stdout
    assert "<strong>hot</strong>\n  diverged" in (directory.parent / "report.html").read_text()
    assert command.do("resume").returncode == 2  # it has made all its updates


def test_the_json_of_every_command_is_json(command: CommandLine) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    simulated = command.do("simulate", command.spec(SPEC), "--no-report", "--json")
    assert simulated.returncode == STATUS, simulated.stderr
    told = [simulated.stdout]
    told += [command.do(*words, "--json").stdout for words in (["ls"], ["show"])]
    told.append(command.do("compare", SPEC["name"], "--json").stdout)
    for text in told:
        assert "diverged" in text
        json.loads(text, parse_constant=refuse)


def test_an_earlier_run_with_the_word_completed_is_read_as_diverged(command: CommandLine) -> None:
    assert command.do("simulate", command.spec(SPEC), "--no-report").returncode == STATUS
    for directory in command.out.glob("*/*/*/"):
        for name in ("manifest", "summary"):
            path = directory / f"{name}.json"
            content = json.loads(path.read_bytes()) | {"ended": "completed", "reason": None}
            content.pop("final_loss", None)
            path.write_text(json.dumps(content))
    assert words(command.do("ls").stdout, "hot")[1] == "diverged"
    assert words(command.do("ls").stdout, "mild")[1] == "completed"
    assert words(command.do("compare", SPEC["name"]).stdout, "hot")[2] == "diverged"
    told = json.loads(command.do("show", "--json").stdout)
    assert [run["ended"] for run in told] == ["diverged", "completed"]


def test_a_sweep_keeps_a_run_that_diverged_and_says_so_each_time(command: CommandLine) -> None:
    spec = command.spec(
        SPEC
        | {"engine": "simulation", "clock": "virtual", "algorithms": ["asgd"]}
        | {"sweep": {"training.learning_rate": [0.05, 1e30]}}
    )
    for complete in (0, 2):
        done = command.do("sweep", spec, "--at-once", "1")
        assert done.returncode == STATUS, done.stderr
        assert f"2 runs, {complete} of them complete" in done.stdout
        assert "testbed: 1 of 2 runs diverged; " in done.stderr
        (table,) = command.out.glob("*/sweep/results.csv")
        with table.open(newline="") as file:
            assert [row["ended"] for row in csv.DictReader(file)] == ["completed", "diverged"]


def test_the_library_returns_a_run_that_diverged_with_a_warning(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(SPEC), encoding="utf-8")
    with pytest.warns(RuntimeWarning, match="/hot diverged: the loss is not a finite number"):
        runs = testbed.simulate(spec, out=tmp_path / "runs", progress=False)
    assert [run.summary.ended for run in runs] == ["diverged", "completed"]
    assert "diverged" in repr(runs["hot"])


def row(iteration: int, loss: float) -> dict[str, float | int | None]:
    return {"iteration": iteration, "accuracy": 10.0, "loss": loss, "measured": None}


@pytest.mark.parametrize(
    ("losses", "last_parameter", "ended"),
    [
        ((2.3, 1.0), 0.5, "completed"),
        ((np.inf, 1.0), 0.5, "completed"),  # it came back
        ((2.3, np.nan), 0.5, "diverged"),
        ((2.3, np.inf), 0.5, "diverged"),
        ((2.3, 1.0), np.nan, "diverged"),  # a parameter that no test image needs
        ((2.3, 1.0), -np.inf, "diverged"),
        ((), np.nan, "diverged"),
        ((), 0.5, "completed"),
    ],
)
def test_the_final_parameters_and_their_loss_decide(
    losses: tuple[float, ...], last_parameter: float, ended: str
) -> None:
    outcome = RunOutcome()
    for i, loss in enumerate(losses):
        outcome.take(EvaluationMade(row(10 * i, loss)))
    outcome.takes(np.array([1.0, last_parameter], np.float32))
    outcome.complete()
    assert outcome.ended == ended
    assert (outcome.reason is None) == (ended == "completed")


def test_seeds_of_one_curve_say_how_many_diverged(command: CommandLine) -> None:
    spec = command.spec(SPEC | {"algorithms": [HOT]})
    for seed, rate in (("1", "0.05"), ("2", "50")):
        options = ("--seed", seed, "--set", f"algorithms.0.learning_rate={rate}", "--no-report")
        command.do("simulate", spec, *options)
    found = [
        RecordedRun.load(path.parent) for path in sorted(command.out.glob("*/*/*/manifest.json"))
    ]
    for run in found:  # alike but for the seed
        (run.directory / "spec.yaml").write_text(f"seed: {run.manifest.seed}\n")
    (curve,) = curves_of([RecordedRun.load(run.directory) for run in found])
    assert curve.title == "hot (2 seeds, 1 diverged)"

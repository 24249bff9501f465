"""Results as tables and frames: they have the numbers of the run directories."""

import csv
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import testbed
from testbed.errors import SpecError, TestbedError
from testbed.results.reading.journals import NoRunError
from tests.library.conftest import SMALL, Simulated
from tests.results.conftest import evaluations_table, writer_of_runs


def test_a_curve_has_the_numbers_of_the_runs_directory(simulated: Simulated) -> None:
    run = simulated.runs["asgd"]
    curve = run.curve()
    assert list(curve) == ["updates", "seconds", "accuracy", "payload", "message", "wire"]
    with (run.directory / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert curve["updates"].tolist() == [0, 20, 40, 60]
    assert curve["accuracy"].tolist() == [float(row["accuracy"]) for row in rows]
    assert curve["wire"].tolist() == [int(row["wire_bytes"]) for row in rows]
    assert curve["seconds"].iloc[-1] == pytest.approx(float(rows[-1]["time"]))


def test_several_runs_have_a_column_that_tells_them_apart(simulated: Simulated) -> None:
    curves = simulated.runs.curve()
    assert list(curves)[:2] == ["run", "updates"]
    last = curves.groupby("run")["payload"].last()
    assert last["asgd"] == simulated.runs["asgd"].summary.ingress.payload_bytes
    assert 0 < last["adacomp-0.01"] < last["asgd"]
    updates = simulated.runs.updates()
    assert updates.num_rows == 120
    assert updates.column("run").unique().to_pylist() == ["asgd", "adacomp-0.01"]


def test_runs_of_programs_are_together_with_one_that_told_nothing(tmp_path: Path) -> None:
    """Their payloads are unknown, and one without an evaluation has a column of whole numbers."""
    write, programs = writer_of_runs(tmp_path), {"job": ["server"]}
    told = evaluations_table(20, 1_000)
    for place in (4, 5):
        unknown = pa.nulls(len(told), told.schema.field(place).type)
        told = told.set_column(place, told.schema.field(place), unknown)
    for label, table in (("a", told), ("b", told.slice(0, 0))):
        write(label, "flower/sweep", evaluations=table, programs=programs)
    runs = testbed.open_runs(tmp_path / "flower" / "sweep")
    assert list(runs.curve().run) == ["a"] * len(told)
    assert runs.evaluations().column("wire_bytes").to_pylist() == told["wire_bytes"].to_pylist()


def test_diagnostics_are_a_row_for_each_update(simulated: Simulated, tmp_path: Path) -> None:
    assert simulated.runs.diagnostics().num_rows == 0  # neither reports any
    experiment = testbed.Experiment.parse(SMALL).with_(algorithms=["ga"])
    told = testbed.simulate(experiment, out=tmp_path, progress=False).diagnostics()
    assert told.column_names == ["run", "iteration", "delay", "penalty", "gap"]
    assert told.column("run").unique().to_pylist() == ["ga"]
    assert told.column("iteration").to_pylist() == list(range(1, 61))


def test_a_run_is_opened_by_its_directory_or_name(simulated: Simulated) -> None:
    runs = testbed.open_runs("small", root=simulated.root)
    assert (runs.directory, runs.names) == (simulated.runs.directory, simulated.runs.names)
    run = testbed.open_run(simulated.runs.directory / "asgd")
    assert (run.label, run.seed, run.summary.ended) == ("asgd", 1, "completed")
    assert run.id == f"small/{simulated.runs.directory.name}/asgd"
    written = json.loads((run.directory / "summary.json").read_bytes())
    assert run.summary.parameters_sha256 == written["parameters_sha256"]
    assert [event.level for event in run.events()] == []
    with pytest.raises(NoRunError, match="has 2 runs: name one"):
        testbed.open_run("small", root=simulated.root)
    with pytest.raises(NoRunError, match="the nearest names are"):
        testbed.open_run("smal", root=simulated.root)


def test_what_only_one_run_has_is_asked_of_one(simulated: Simulated) -> None:
    with pytest.raises(SpecError, match=r"2 runs, asgd, adacomp-0\.01: take one by its name"):
        _ = simulated.runs.summary
    with pytest.raises(KeyError, match="there is no run 'asg'"):
        simulated.runs["asg"]
    one = testbed.open_runs(simulated.runs[0].directory)
    assert one.summary == simulated.runs[0].summary
    assert [run.label for run in simulated.runs] == ["asgd", "adacomp-0.01"]
    assert len(simulated.runs[:1]) == 1


def test_a_label_that_several_runs_have_stands_for_none_of_them(tmp_path: Path) -> None:
    write = writer_of_runs(tmp_path)
    for seed in (1, 2):
        write("asgd", f"seeds/sweep-{seed}", seed=seed)
    found = [testbed.open_run(tmp_path / "seeds" / f"sweep-{seed}" / "asgd") for seed in (1, 2)]
    runs = testbed.Runs(tmp_path, found)
    assert runs["asgd, seed 2"].seed == 2
    with pytest.raises(KeyError, match="several runs 'asgd': there are asgd, seed 1, asgd, seed 2"):
        runs["asgd"]


def test_without_pandas_only_frames_are_missing(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TestbedError, match=r"pandas is not installed.*testbed\[notebook\]"):
        simulated.runs.curve()
    assert simulated.runs.evaluations().num_rows == 8
    assert len(testbed.compare(simulated.runs).records()) == 2


def test_how_busy_devices_were_is_a_frame(simulated: Simulated) -> None:
    run = simulated.runs["asgd"]
    frame = run.utilisation()
    workers = frame[frame["part"] == "worker"]
    told = run.summary.utilisation
    assert told is not None and told.parts["worker"].cpu is not None
    assert workers["cpu_utilisation"].mean() == pytest.approx(told.parts["worker"].cpu.mean)
    assert frame["device"].iloc[-1] == "server"
    (run.directory / "utilisation.parquet").rename(run.directory / "away")
    try:
        with pytest.raises(NoRunError, match="no table of its devices' use"):
            run.utilisation()
    finally:
        (run.directory / "away").rename(run.directory / "utilisation.parquet")

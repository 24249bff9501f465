"""Resuming a run in its directory: earlier traffic files, damaged marks, and the lock."""

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from testbed.checkpoints.checkpoint_marks import NAME, Mark, Marks
from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.state_file import PAGE, StateFile
from testbed.errors import SpecError
from testbed.experiment.load import dump, load
from testbed.results.reading.finding import find, resolve, without_runs
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.resuming import FOLDER, Resumption, clear, never_begun, prepare
from testbed.telemetry.entries import Diagnoses, EnergyUsed, EvaluationMade
from testbed.telemetry.evaluation_log import CURVE_COLUMNS, MEASURED
from testbed.telemetry.run_log import Kept, RunLog


def resumption(times: int) -> Resumption:
    """Make the resumption of a run that was resumed ``times`` times before."""
    kept = Kept({"resumed": [{}] * times}, {}, (), {})
    return Resumption(kept, None, (), (), host_seconds=0.0, lock=-1)


def test_earlier_traffic_files_are_put_aside(tmp_path: Path) -> None:
    traffic = tmp_path / "traffic"
    for times in range(2):
        traffic.mkdir(exist_ok=True)
        (traffic / "ledgers.json").write_text(f"{times}")
        resumption(times).put_traffic_aside(tmp_path)
    found = {str(path.relative_to(traffic)): path.read_text() for path in traffic.glob("*/*")}
    assert found == {"earlier-1/ledgers.json": "0", "earlier-2/ledgers.json": "1"}


def test_a_run_that_was_killed_at_once_has_nothing_to_put_aside(tmp_path: Path) -> None:
    resumption(0).put_traffic_aside(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_damaged_marks_are_reported_and_the_lock_is_released(tmp_path: Path) -> None:
    directory = tmp_path / "small" / "time-1" / "asgd"
    about = {"experiment": "small", "algorithm": "asgd", "seed": 1, "engine": "emulation"}
    log = RunLog(directory, "", about | {"clock": "wall", "workers": 2, "versions": {}})
    log.close("interrupted", None, {})
    folder = directory / FOLDER
    with CheckpointFiles.open(folder, ()):
        Marks(folder).note(Mark(0, 0.0, 0, 0, 0, 0, 0, [{}], [0]))
    run = RecordedRun.load(directory)
    whole = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(b"")
    with pytest.raises(SpecError, match=r"marks.json is damaged, .* remove .*, and it begins anew"):
        prepare(run, ())
    (folder / NAME).write_bytes(whole)
    with closing(prepare(run, ())), pytest.raises(SpecError, match="another process already"):
        prepare(run, ())


def test_a_checkpoint_is_not_used_if_diagnostics_before_it_are_lost(tmp_path: Path) -> None:
    directory = tmp_path / "small" / "time-1" / "sync-sgd"
    about = {"experiment": "small", "algorithm": "sync-sgd", "seed": 1, "engine": "simulation"}
    about |= {"clock": "virtual", "workers": 2, "versions": {}}
    about |= {"measure": {"name": "perplexity"}, "exact": ["training_loss"]}
    log = RunLog(directory, "", about | {"diagnostics": [{"name": "k", "meaning": "k."}]})
    log.take(EvaluationMade(dict.fromkeys([*CURVE_COLUMNS, MEASURED, "training_loss"], 0)))
    log.take(Diagnoses(np.ones((3, 1)), 3))
    log.close("interrupted", None, {})
    counts = {"updates": 0, "evaluations": 1, "faults": 0}
    with CheckpointFiles.open(directory / FOLDER, ()) as files:
        for version in (2, 4):
            files.write(version, {"version": version, "counts": counts})
    with closing(prepare(RecordedRun.load(directory), ())) as found:
        assert found.state is not None
        assert found.state["version"] == 2
        assert found.kept.tables["diagnostics"]["iteration"].to_pylist() == [1, 2]
        # What only some runs measure is kept as well.
        assert found.kept.evaluations[0][MEASURED] == 0
        assert found.kept.evaluations[0]["training_loss"] == 0


def test_energies_after_the_checkpoint_are_cut_off_as_evaluations_are(tmp_path: Path) -> None:
    directory = tmp_path / "small" / "time-1" / "asgd"
    about = {"experiment": "small", "algorithm": "asgd", "seed": 1, "engine": "simulation"}
    about |= {"clock": "virtual", "workers": 2, "versions": {}, "energy": True}
    log = RunLog(directory, "", about)
    for time in (0.0, 1.5, 2.5):
        log.take(EnergyUsed(time, 10 * time))
        log.take(EvaluationMade(dict.fromkeys(CURVE_COLUMNS, 0) | {"time": time}))
    log.close("interrupted", None, {})
    for evaluations, kept in ((2, [0.0, 1.5]), (0, [])):
        counts = {"updates": 0, "evaluations": evaluations, "faults": 0}
        with CheckpointFiles.open(directory / FOLDER, ()) as files:
            files.write(7, {"version": 7, "counts": counts})
        with closing(prepare(RecordedRun.load(directory), ())) as found:
            assert found.kept.tables["energy"]["time"].to_pylist() == kept
    for name in ("evaluations", "energy"):  # a run that was killed at once has neither
        (directory / f"{name}.parquet").unlink()
        (directory / "curve.csv").unlink(missing_ok=True)
        with closing(prepare(RecordedRun.load(directory), ())) as found:
            assert not found.kept.tables["energy"].num_rows


def test_an_execution_that_was_killed_before_its_first_manifest_begins_anew(tmp_path: Path) -> None:
    directory = tmp_path / "small" / "time-1"
    directory.mkdir(parents=True)
    (tmp_path / "small.yaml").write_text(
        "name: small\ndataset: digits\nmodel: mlp\ntraining: {updates: 20}\n"
        "algorithms: [asgd, {name: adacomp, ratio: 0.1}]\ndevices: {workers: 2}\n"
    )
    (directory / "experiment.yaml").write_text(dump(load(tmp_path / "small.yaml")))
    begun = directory / "asgd"
    begun.mkdir()
    (begun / ".reserve").write_bytes(b"0" * 100)
    (begun / "spec.yaml").write_text("")
    (execution,) = find(tmp_path)
    assert execution.runs == () and "`testbed resume`" in str(execution.unreadable[0])
    with pytest.raises(NoRunError, match="has no run: its execution was killed before"):
        resolve(str(directory), tmp_path)
    assert without_runs(str(directory), tmp_path) == directory.resolve()
    jobs = never_begun(directory)
    assert [(job.plan.label, job.ended) for job in jobs] == [("asgd", None), ("adacomp-0.1", None)]
    clear(begun)
    assert not begun.exists()
    clear(begun)
    begun.mkdir()
    (begun / "notes").write_text("of a person")
    with pytest.raises(SpecError, match="other files than a run begins with: remove it"):
        clear(begun)


def test_a_damaged_checkpoint_is_passed_over_and_told_of(tmp_path: Path) -> None:
    directory = tmp_path / "small" / "time-1" / "asgd"
    about = {"experiment": "small", "algorithm": "asgd", "seed": 1, "engine": "simulation"}
    log = RunLog(directory, "", about | {"clock": "virtual", "workers": 2, "versions": {}})
    log.close("interrupted", None, {})
    nothing = {"updates": 0, "evaluations": 0, "faults": 0}
    with CheckpointFiles.open(directory / FOLDER, ()) as files:
        files.write(0, {"version": 0, "counts": nothing})
        files.write(1, {"version": 1, "counts": nothing})
    newer = directory / FOLDER / "odd"
    newer.write_bytes(newer.read_bytes()[:-1])
    with closing(prepare(RecordedRun.load(directory), ())) as found:
        assert found.told.endswith("the checkpoint of update 0; 1 other checkpoint cannot be read")


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{}", b"[1]", b'[{"version": []}]', b"\xff"])
def test_marks_of_any_content_are_damaged_in_one_way(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(ValueError):
        list(Marks.load(tmp_path))


def test_a_checkpoint_is_left_out_whose_workers_states_are_not_there(tmp_path: Path) -> None:
    """One of them was on another host, or the host has crashed."""
    directory = tmp_path / "small" / "time-1" / "asgd"
    about = {"experiment": "small", "algorithm": "asgd", "seed": 1, "engine": "emulation"}
    log = RunLog(directory, "", about | {"clock": "virtual", "workers": 2, "versions": {}})
    log.close("interrupted", None, {})
    folder = directory / FOLDER
    with CheckpointFiles.open(folder, ()) as files:
        for at, needed in {0: dict[int, int](), 10: {0: 3, 1: 4}}.items():
            files.write(at, {"version": at, "kept": [{}, needed]})
            Marks.load(folder).note(Mark(at, 0.0, 0, 0, 0, 0, 0, [{}], [0]))
    run = RecordedRun.load(directory)

    def version() -> int:
        with closing(prepare(run, ())) as found:
            assert found.state is not None
            return int(found.state["version"])

    assert version() == 0
    for name, numbers in (("worker-0", (2, 3)), ("worker-1", (5, 4))):
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT)
        for number in numbers:
            assert version() == 0
            StateFile(descriptor).write(number, {"own": np.ones(9)}, lambda _: True)
        if name == "worker-0":
            os.close(descriptor)
    assert version() == 10
    os.pwrite(descriptor, b"damage", PAGE + 100)
    assert version() == 0
    os.close(descriptor)

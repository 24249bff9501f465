"""Runs as a shell names them, and the facts that it shows of one."""

import json
from pathlib import Path

import pytest

from testbed.cli.shown_runs import all_runs, print_run
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from tests.results.conftest import writer_of_runs


def test_files_beside_runs_are_no_runs_and_no_mistake(tmp_path: Path) -> None:
    write = writer_of_runs(tmp_path)
    execution = write("asgd", "small/1").parent
    write("adacomp-0.1", "small/1")
    for name in ("report.html", "experiment.yaml", "results.csv"):
        (execution / name).touch()
    (execution / "figures").mkdir()
    every = [str(path) for path in sorted(execution.iterdir())]
    assert {run.algorithm for run in all_runs(every, tmp_path)} == {"asgd", "adacomp-0.1"}
    with pytest.raises(NoRunError, match=r"there is no run .*notes"):
        all_runs([*every, str(execution / "notes")], tmp_path)
    with pytest.raises(NoRunError, match="no run directory and no execution"):
        all_runs([str(execution / "figures")], tmp_path)


def test_a_fact_with_a_long_name_is_apart_from_what_is_said_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = writer_of_runs(tmp_path)("asgd", "small/1")
    path = directory / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"never_struck": [0]}))
    print_run(RecordedRun.load(directory), "asgd")
    shown = capsys.readouterr().out
    assert "\n  never struck this fault never struck, training ended at " in shown
    assert "\n  state       completed\n" in shown

"""Runs as a shell names them."""

from pathlib import Path

import pytest

from testbed.cli.shown_runs import all_runs
from testbed.results.reading.journals import NoRunError
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

"""CSV tables: pandas reads them, and a run is in them once."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from testbed.errors import TestbedError
from testbed.export.csv_tables import CsvTables
from testbed.results.reading.recorded_run import RecordedRun
from tests.export.conftest import columns, grown, what


def test_pandas_reads_the_tables_of_all_runs(runs: list[RecordedRun], tmp_path: Path) -> None:
    assert what(runs, CsvTables(tmp_path)) == ["written"] * 2
    for name in ("evaluations", "updates"):
        table = pd.read_csv(tmp_path / f"{name}.csv")
        for run in runs:
            own = table[table.run == run.id].drop(columns="run").reset_index(drop=True)
            expected = pd.DataFrame(columns(run, name))[own.columns]
            pd.testing.assert_frame_equal(own, expected, check_like=True, check_dtype=False)
    options = pd.read_csv(tmp_path / "options.csv").pivot(
        index="run", columns="key", values="value"
    )
    assert options.loc[runs[1].id, "algorithms.0.momentum"] == "0.5"
    results = pd.read_csv(tmp_path / "runs.csv").set_index("run")
    assert list(results.ended) == ["completed"] * 2
    assert results.loc[runs[0].id, "best_accuracy"] == runs[0].summary.best_accuracy


def test_a_run_that_has_grown_replaces_its_rows_and_no_others(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    out = CsvTables(tmp_path / "out")
    assert what([grown(runs[1], tmp_path), runs[0]], out) == ["written"] * 2
    assert what(runs, out) == ["unchanged", "replaced"]
    table = pd.read_csv(tmp_path / "out" / "evaluations.csv")
    assert table.run.value_counts().to_dict() == {run.id: len(run.evaluations) for run in runs}
    assert what(runs, out) == ["unchanged"] * 2


def test_numbers_that_are_not_finite_are_empty_and_all_others_exact(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    odd = [float("inf"), float("nan")]
    changed = grown(runs[1], tmp_path)
    for name, place in {"updates": "loss", "evaluations": "loss", "diagnostics": -1}.items():
        path = changed.directory / f"{name}.parquet"
        table = parquet.read_table(path)
        column = table.column(place)
        values = pa.array([*odd, *column.to_pylist()[2:]], column.type)
        at = table.column_names.index("loss") if place == "loss" else len(table.column_names) - 1
        parquet.write_table(table.set_column(at, table.column_names[at], values), path)
    out = CsvTables(tmp_path / "out")
    for of in ([runs[0]], [RecordedRun.load(changed.directory)], [runs[0]]):
        what(of, out)
        for path in (tmp_path / "out").glob("*.csv"):
            cells = {cell for line in path.read_text().splitlines() for cell in line.split(",")}
            assert not {"inf", "-inf", "nan"} & cells
    losses = pd.read_csv(tmp_path / "out" / "updates.csv").groupby("run").loss
    for run in (runs[0], RecordedRun.load(changed.directory)):
        own = np.array(columns(run, "updates")["loss"])
        assert losses.get_group(run.id).dropna().tolist() == own[np.isfinite(own)].tolist()


def test_values_of_several_lines_and_of_any_length_are_read_again(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    long = grown(runs[1], tmp_path)
    with (long.directory / "spec.yaml").open("a") as file:
        yaml.safe_dump({"environment": {"A": "x\n" * 300_000, "B": "y" * 1_500_000}}, file)
    out = CsvTables(tmp_path / "out")
    assert what([RecordedRun.load(long.directory), runs[0]], out) == ["written"] * 2
    options = pd.read_csv(tmp_path / "out" / "options.csv").set_index(["run", "key"]).value
    assert options[long.id, "environment.A"] == "x\n" * 300_000
    assert len(options[long.id, "environment.B"]) == 1_500_000


def test_a_file_of_somebody_else_is_not_replaced(runs: list[RecordedRun], tmp_path: Path) -> None:
    (tmp_path / "updates.csv").write_text("mine\n1\n")
    with pytest.raises(TestbedError, match=r"updates\.csv is no table of an export"):
        what(runs, CsvTables(tmp_path))
    assert (tmp_path / "updates.csv").read_text() == "mine\n1\n"

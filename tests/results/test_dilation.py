"""A run beside its dilated one: where their curves differ, and by how much."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from testbed.errors import RunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.dilation_table import compared
from testbed.results.tables.table import plain_text
from tests.results.conftest import WriteRun, evaluations_table


def written(write_run: WriteRun, name: str, factor: float, late: float = 0.0) -> RecordedRun:
    """Write a run of 200 updates in 2 s, with all times longer, the last half also ``late``."""
    directory = write_run(name)
    table = parquet.read_table(directory / "updates.parquet")
    times = table.column("time").to_numpy() * factor
    times[100:] += late
    at = table.schema.get_field_index("time")
    table = table.set_column(at, "time", pa.array(times))
    parquet.write_table(table, directory / "updates.parquet")
    return RecordedRun.load(directory)


def test_curves_over_time_by_the_factor_are_compared(write_run: WriteRun) -> None:
    original = written(write_run, "asgd", 1)
    found = compared(original, written(write_run, "slower", 4), 4.0)
    assert found.greatest == (0.0, 0.0)
    late = compared(original, written(write_run, "late", 4, late=0.8), 4.0)
    times, ingress = late.greatest  # 0.2 s of 2 s, in which 20 of 200 pushes come
    assert [times, ingress] == pytest.approx([0.1, 0.1])
    assert late.agrees(0.11)
    assert not late.agrees(0.09)
    lines = plain_text(late).splitlines()
    assert len(lines) == 11
    assert lines[-1].split()[:6] == ["200", "2.000", "s", "2.200", "s", "+10.00"]


def test_an_update_is_made_by_the_last_of_its_pushes(write_run: WriteRun) -> None:
    run = written(write_run, "pairs", 1)
    table = parquet.read_table(run.directory / "updates.parquet")
    at = table.schema.get_field_index("iteration")
    pairs = pa.array(np.arange(2, 202) // 2)
    parquet.write_table(table.set_column(at, "iteration", pairs), run.directory / "updates.parquet")
    run = RecordedRun.load(run.directory)
    last = compared(run, run, 1.0).points[-1]
    assert (last.update, last.time) == (100, table.column("time")[-1].as_py())


def test_runs_of_other_numbers_of_updates_are_not_compared(write_run: WriteRun) -> None:
    original = written(write_run, "asgd", 1)
    shorter = RecordedRun.load(write_run("shorter", count=150))
    with pytest.raises(RunError, match=r"made 150 updates and .* 200: only runs that made all"):
        compared(original, shorter, 4.0)


def test_runs_without_an_accuracy_are_shown_by_what_they_measure(write_run: WriteRun) -> None:
    table = evaluations_table(200, 1_000_000)
    none = pa.array(np.full(len(table), np.nan))
    regression = table.set_column(table.schema.get_field_index("accuracy"), "accuracy", none)
    run = RecordedRun.load(write_run("regression", evaluations=regression))
    found = compared(run, run, 1.0)
    assert plain_text(found).splitlines()[0].split()[-2:] == ["loss", "dilated"]
    last = float(table["loss"][-1].as_py())
    assert [found.points[-1].value, found.points[-1].dilated_value] == [last, last]

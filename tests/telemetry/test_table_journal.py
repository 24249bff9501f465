"""Journals on a disk that is full for a while: what was refused is missing, and nothing else."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.telemetry.table_journal import Journal

SCHEMA = pa.schema([("at", pa.float64()), ("what", pa.string())])


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limit the size of files, as a full disk does; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@given(st.lists(st.one_of(st.none(), st.integers(0, 3000)), max_size=12))
def test_rows_that_had_room_are_read(
    tmp_path_factory: pytest.TempPathFactory, limits: list[int | None]
) -> None:
    """Also where the first row, before which the schema stands, had none."""
    directory = tmp_path_factory.mktemp("run")
    journal, written = Journal(directory, "rows", SCHEMA), []
    for number, limit in enumerate(limits):
        row = {"at": [float(number)], "what": [f"row {number}"]}
        try:
            with files_of_at_most(limit if limit is not None else 1 << 30):
                journal.append(row)
        except OSError:
            assert limit is not None
        else:
            written.append(float(number))
        assert journal.rows == len(written)
        if written:  # as a reader sees it, should the run be killed now
            with pa.ipc.open_stream(directory / "rows.arrows") as reader:
                found = [at for batch in reader for at in batch.column("at").to_pylist()]
            assert found == written
    journal.close()
    assert pq.read_table(directory / "rows.parquet").column("at").to_pylist() == written


def test_a_first_row_without_room_loses_only_itself(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "rows", SCHEMA)
    with files_of_at_most(100), pytest.raises(OSError, match="File too large"):
        journal.append({"at": [0.0], "what": ["lost"]})
    journal.append({"at": [1.0], "what": ["kept"]})
    journal.close()
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == [{"at": 1.0, "what": "kept"}]

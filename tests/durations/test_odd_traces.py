"""Traces of durations that fuzzing found to end with a traceback."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.durations.traces import load_trace
from testbed.errors import SpecError


def test_a_device_s_name_may_have_any_number_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"device,seconds\nb{'9' * 5000},1\nb2,2\n", encoding="utf-8")
    assert set(load_trace(path).names) == {"b2", f"b{'9' * 5000}"}


def test_a_name_of_a_column_is_shown_without_its_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table({"a\n\x1b[2J": [1.0]}), path)
    with pytest.raises(SpecError, match=r"its columns are a\\n\\x1b\[2J$"):
        load_trace(path)


@pytest.mark.parametrize(("column", "device"), [("seconds", b"a\xff"), ("secondXs", b"a")])
def test_text_in_parquet_that_is_not_utf_8_is_refused(
    tmp_path: Path, column: str, device: bytes
) -> None:
    path = tmp_path / "trace.parquet"
    names = pa.array([device]).view(pa.string())
    pq.write_table(pa.table({column: [1.0], "device": names}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"secondXs", b"second\xffs"))
    with pytest.raises(SpecError, match=r"trace\.parquet has text that is not UTF-8"):
        load_trace(path)

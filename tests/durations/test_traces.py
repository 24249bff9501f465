"""Traces: the draws from their rows, in both formats and orders, and one sentence for a bad file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from testbed.durations import Durations, load_trace
from testbed.durations.traces import DrawnRows, Order
from testbed.errors import SpecError

Write = Callable[[dict[str, list[Any]]], Path]


@pytest.fixture(params=["csv", "parquet"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Return a function that writes columns to a file; the test runs once for each format."""

    def to_csv(columns: dict[str, list[Any]]) -> Path:
        rows = zip(*columns.values(), strict=True)
        lines = [",".join("" if v is None else str(v) for v in row) for row in (columns, *rows)]
        path = tmp_path / "trace.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def to_parquet(columns: dict[str, list[Any]]) -> Path:
        import pyarrow as pa
        from pyarrow import parquet

        path = tmp_path / "trace.parquet"
        parquet.write_table(pa.table(columns), path)
        return path

    return to_csv if request.param == "csv" else to_parquet


def durations(path: Path, devices: int, **more: Any) -> Durations:
    return Durations.of({"distribution": "trace", "file": str(path)} | more, 1, "waiting", devices)


def draws(of: Durations, device: int, count: int) -> list[float]:
    one = of.of_device(device)
    return [one.sample(0.0) for _ in range(count)]


def test_a_pooled_trace_is_replayed_from_its_start_at_its_end(write: Write) -> None:
    of = durations(write({"note": ["a", "b", "c"], "seconds": [0.5, 0.25, 1.0]}), 1)
    assert draws(of, 0, 7) == [0.5, 0.25, 1.0, 0.5, 0.25, 1.0, 0.5]
    assert of.of_device(0).mean == of.mean == pytest.approx(1.75 / 3)


def test_devices_that_share_a_trace_start_at_different_rows(write: Write) -> None:
    of = durations(write({"seconds": [float(i) for i in range(8)]}), 4)
    assert [draws(of, i, 3) for i in range(4)] == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 0]]


@pytest.mark.parametrize("names", [["worker-10", "worker-2"], ["10", "2"], ["b", "a"]])
def test_each_device_has_its_own_rows(write: Write, names: list[str]) -> None:
    """Devices take names in natural order, not in the file's: device 0 has the rows of ``first``."""
    last, first = names
    columns: dict[str, list[Any]] = {
        "device": [last, first, last, first],
        "seconds": [10.0, 1.0, 20.0, 2.0],
    }
    of = durations(write(columns), 5)
    assert [draws(of, i, 2) for i in range(5)] == [[1, 2], [10, 20], [1, 2], [20, 10], [2, 1]]
    assert of.of_device(1).mean == of.of_device(3).mean == 15.0


def test_devices_may_be_numbers(write: Write) -> None:
    trace = load_trace(write({"device": [10, 9, 10], "seconds": [1, 2, 3]}))
    assert trace.names == ("9", "10")
    assert [rows.seconds.tolist() for rows in trace.devices] == [[2.0], [1.0, 3.0]]


def test_random_order_draws_rows_with_replacement(write: Write) -> None:
    seconds = [0.1, 0.2, 0.4, 0.8]
    of = durations(write({"seconds": seconds}), 2, order="random")
    sample = draws(of, 0, 4000)
    counts = [sample.count(value) for value in seconds]
    assert sum(counts) == 4000
    assert stats.chisquare(counts).pvalue > 0.001
    again = durations(write({"seconds": seconds}), 2, order="random")
    assert draws(again, 0, 50) == sample[:50] != draws(of, 1, 50)
    rows = load_trace(write({"seconds": seconds})).devices[0]
    law = DrawnRows(rows.mean, rows)
    assert law.variance == pytest.approx(np.var(seconds))
    assert [law.quantile(share) for share in (0.2, 0.25, 0.3, 0.99)] == [0.1, 0.1, 0.2, 0.8]


def test_random_order_keeps_to_the_device_s_rows(write: Write) -> None:
    columns: dict[str, list[Any]] = {"device": ["a", "b", "b"], "seconds": [1.0, 2.0, 3.0]}
    of = durations(write(columns), 4, order="random")
    assert [set(draws(of, i, 30)) for i in range(4)] == [{1.0}, {2.0, 3.0}] * 2


def test_classes_and_changes_apply_to_a_trace(write: Write) -> None:
    of = durations(
        write({"seconds": [1.0, 2.0]}),
        1,
        classes=[{"share": 1.0, "factor": 10.0}],
        changes=[{"at": 5.0, "share": 1.0, "factor": 3.0}],
    )
    one = of.of_device(0)
    assert [one.sample(now) for now in (0.0, 4.9, 5.0)] == [10.0, 20.0, 30.0]


def test_all_devices_share_the_trace_s_arrays(write: Write) -> None:
    trace = load_trace(write({"seconds": [1.0, 2.0]}))
    assert trace.devices[0].seconds.flags.writeable is False
    orders: tuple[Order, ...] = ("sequence", "random")
    for order in orders:
        made = [trace.of_device(i, 9, order) for i in range(9)]
        held = {id(one.rows if isinstance(one, DrawnRows) else one._seconds) for one in made}
        assert len(held) == 1


def test_csv_as_spreadsheets_write_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b'\xef\xbb\xbf"device", "seconds"\r\n"a, b",1e-3\r\n\r\nc, 2 \r\n')
    trace = load_trace(path)
    assert trace.names == ("a, b", "c")
    assert [rows.seconds.tolist() for rows in trace.devices] == [[0.001], [2.0]]


def refusal(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        load_trace(path)
    text = str(caught.value)
    assert text.startswith(f"the trace {path}")
    assert "\n" not in text
    return text.removeprefix(f"the trace {path}")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"second": [1.0]}, " has no column 'seconds': its columns are second"),
        ({"seconds": [1.0, -1.0]}, ": '-1.0' is not a number of seconds, 0 or more"),
        ({"seconds": [1.0, float("nan")]}, ": 'nan' is not a number of seconds, 0 or more"),
        ({"seconds": [1.0, float("inf")]}, ": 'inf' is not a number of seconds, 0 or more"),
        ({"seconds": ["1.0", "soon"]}, ": 'soon' is not a number of seconds, 0 or more"),
        ({"device": ["a", "a"], "seconds": [1.0, None]}, ": empty is not a number of seconds"),
        ({"device": ["a", None], "seconds": [1.0, 2.0]}, ": has no device; name it, or leave "),
        ({"seconds": [], "device": []}, " has no rows: give it one for each duration"),
    ],
)  # fmt: skip
def test_a_bad_trace_is_refused_in_one_sentence(
    write: Write, columns: dict[str, list[Any]], said: str
) -> None:
    path = write(columns)
    row = ", line 3" if path.suffix == ".csv" else ", row 2"
    assert refusal(path).startswith((row + said, said))
    assert said.startswith(":") == refusal(path).startswith(row)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", " has no column 'seconds': it has no columns"),
        (b"seconds,seconds\n1,2\n", " has more than one column 'seconds'"),
        (b"seconds,device\n1\n", ", line 2, has 1 columns and not 2"),
        (b"seconds\n1_000\n", ", line 2: '1_000' is not a number of seconds"),
        (b"seconds\n\xff\n", " is neither CSV in UTF-8 nor Parquet: "),
        (b"PAR1 and nothing else", " is not a complete Parquet file: "),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    assert refusal(path).startswith(said)


def test_a_trace_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.csv") == " cannot be read: No such file or directory"
    assert refusal(tmp_path) == " cannot be read: it is no regular file"

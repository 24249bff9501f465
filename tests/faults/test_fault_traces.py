"""Traces of faults: the rows that are read, and those that are refused, with their line."""

import os
from pathlib import Path

import pytest

from testbed.errors import SpecError
from testbed.faults.fault_traces import TraceRow, load_trace

DEVICES = {f"worker-{i}": i for i in range(4)}


def read(folder: Path, text: str) -> list[TraceRow]:
    path = folder / "faults.csv"
    path.write_text(text)
    return load_trace(path, DEVICES)


def test_traces_by_time_and_by_iteration_are_read(tmp_path: Path) -> None:
    by_time = read(tmp_path, "device,time,kind,lasting\nworker-3, 1.5, kill, 2\n\nworker-0,0,,\n")
    assert by_time == [TraceRow(1.5, None, 3, "kill", 2.0), TraceRow(0.0, None, 0, None, None)]
    assert read(tmp_path, "iteration,device\n7,worker-1\n") == [TraceRow(None, 7, 1, None, None)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "needs a column device"),
        ("time,device\n", "has no rows"),
        ("time,iteration,device\n1,1,worker-1\n", "either time or iteration"),
        ("time,device,colour\n1,worker-1,red\n", "'colour', which is none of time"),
        ("time,time,device\n1,1,worker-1\n", "'time' more than once"),
        (
            "time,device\n1,worker-1\n1,worker-4\n",
            "line 3: 'worker-4' is not a device of this rule, which has 4 from worker-0",
        ),
        ("time,device\n1,server\n", "'server' is not a device of this rule"),
        ("time,device\n-1,worker-1\n", "line 2: '-1' is not a number of seconds"),
        ("time,device\n1_0,worker-1\n", "'1_0' is not a number"),
        ("time,device\n,worker-1\n", "empty is not a number"),
        ("iteration,device\n0,worker-1\n", "'0' is not an iteration"),
        ("iteration,device\n1.5,worker-1\n", "'1.5' is not an iteration"),
        ("time,device,kind\n1,worker-1,slow\n", "'slow' is not one of freeze, kill"),
        ("time,device,lasting\n1,worker-1,0\n", "nothing would happen"),
        ("time,device\n1\n", "line 2, has 1 columns and not 2"),
        (f"iteration,device\n{'9' * 5000},worker-1\n", f"'{'9' * 40}' is not an iteration"),
        ('time,"device\n1,worker-1\n', "line 1: a cell goes over the end of the line"),
        ('time,device\n1,"worker-1\n2,worker-2\n', "line 3: a cell goes over the end of the line"),
    ],
)
def test_an_invalid_trace_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SpecError, match="the trace ") as refused:
        read(tmp_path, text)
    assert complaint in str(refused.value)


def test_what_is_no_file_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        load_trace(tmp_path / "none.csv", DEVICES)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(SpecError, match="cannot be read: it is no regular file"):
        load_trace(tmp_path / "pipe.csv", DEVICES)
    (tmp_path / "bytes.csv").write_bytes(b"time,device\n\xff\xfe,worker-1\n")
    with pytest.raises(SpecError, match="is not CSV in UTF-8"):
        load_trace(tmp_path / "bytes.csv", DEVICES)


def test_a_trace_for_a_run_without_devices_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faults.csv"
    path.write_text("time,device\n1,worker-1\n")
    with pytest.raises(
        SpecError, match="line 2: 'worker-1' is not a device of this rule, which has none"
    ):
        load_trace(path, {})

"""``testbed logs`` of programs that have written much."""

import contextlib
import json
import tracemalloc
from pathlib import Path

import pytest

from testbed.cli.logs import logs
from testbed.errors import SpecError
from tests.results.conftest import writer_of_runs


def run_with_programs(folder: Path, devices: int) -> Path:
    """Write a run with a program on each device, which has said nothing; return its directory."""
    directory = writer_of_runs(folder)("asgd")
    path = directory / "manifest.json"
    programs = {"it": [f"worker-{i}" for i in range(devices)]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"programs": programs}))
    for i in range(devices):
        (directory / "nodes" / f"worker-{i}").mkdir(parents=True)
    return directory


def test_what_a_program_has_put_in_place_of_its_output_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run_with_programs(tmp_path, 3)
    (directory / "nodes/worker-0/it.log").write_text("2026-11-30T07:00:00.000Z x\n")
    (directory / "nodes/worker-1/it.log").symlink_to("/etc/passwd")
    (directory / "nodes/worker-2/it.log").mkdir()
    logs(run=str(directory))
    printed, told = capsys.readouterr()
    assert printed == "worker-0 it: 2026-11-30T07:00:00.000Z x\n"
    assert [line.split(": ")[:3] for line in told.splitlines()] == [
        ["left out", "worker-1 it", "it is a symbolic link"],
        ["left out", "worker-2 it", "it is no regular file"],
    ]


def test_logs_take_no_memory_for_what_they_print(tmp_path: Path) -> None:
    directory = run_with_programs(tmp_path, 4)
    lines = [f"2026-11-30T07:{i // 60_000:02}:{i % 60_000 / 1000:06.3f}Z x" for i in range(90_000)]
    for i in range(4):
        (directory / f"nodes/worker-{i}/it.log").write_text(
            "".join(f"{line}\n" for line in lines[i::4])
        )
    printed = tmp_path / "printed"
    with printed.open("w") as file, contextlib.redirect_stdout(file):
        logs(["worker-0"], run=str(directory))  # what is loaded once is loaded
        tracemalloc.start()
        logs(run=str(directory))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    found = printed.read_text().splitlines()
    assert found[: len(lines[::4])] == lines[::4]
    assert found[len(lines[::4]) :] == [
        f"worker-{i % 4} it: {line}" for i, line in enumerate(lines)
    ]
    assert most < 12 << 20, "bytes"


def test_an_unknown_name_is_refused_with_the_programs_and_devices_that_there_are(
    tmp_path: Path,
) -> None:
    directory = run_with_programs(tmp_path, 9)
    named = ", ".join(f"worker-{i}" for i in range(8))
    with pytest.raises(SpecError, match=f"the programs it on the devices {named}, …$"):
        logs(["nothing"], run=str(directory))

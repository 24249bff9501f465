"""``testbed logs`` of programs that have written much."""

import contextlib
import json
import tracemalloc
from pathlib import Path

from testbed.cli.logs import logs
from tests.results.conftest import writer_of_runs


def test_logs_take_no_memory_for_what_they_print(tmp_path: Path) -> None:
    directory = writer_of_runs(tmp_path)("asgd")
    path = directory / "manifest.json"
    programs = {"it": [f"worker-{i}" for i in range(4)]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"programs": programs}))
    lines = [f"2026-11-30T07:{i // 60_000:02}:{i % 60_000 / 1000:06.3f}Z x" for i in range(90_000)]
    for i in range(4):
        folder = directory / "nodes" / f"worker-{i}"
        folder.mkdir(parents=True)
        (folder / "it.log").write_text("".join(f"{line}\n" for line in lines[i::4]))
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

"""The last lines that programs have written, as the report shows them."""

import os
import tempfile
from pathlib import Path

from testbed.results.reading.outputs import LINES, last_lines, tail
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import content_of
from tests.results.conftest import writer_of_runs


def test_the_last_lines_are_text_without_colours(tmp_path: Path) -> None:
    directory = writer_of_runs(tmp_path)("asgd")
    run = RecordedRun.load(directory)
    run.manifest.programs.update(it=("server", "worker-0", "worker-1"))
    outputs = directory / "nodes"
    for device in ("server", "worker-0"):
        (outputs / device).mkdir(parents=True)
    lines = [f"line {i} <b> \x1b[31mred\x1b[0m" for i in range(3_000)]
    (outputs / "server" / "it.log").write_text("\n".join(lines) + "\nhalf of a line")
    (outputs / "worker-0" / "it.log").symlink_to(outputs / "server" / "it.log")
    found = last_lines(run)
    assert list(found) == ["server it", "worker-0 it", "worker-1 it"]
    shown = found["server it"].splitlines()
    assert shown[-2:] == ["line 2999 <b> red", "half of a line"]
    assert len(shown) == LINES + 1
    assert found["worker-0 it"] == found["worker-1 it"] == ""
    html = content_of([run]).html
    assert "line 2999 &lt;b&gt; red" in html
    assert html.count("last lines of") == 1


def test_a_look_moves_nothing_for_the_program_that_writes() -> None:
    with tempfile.TemporaryFile() as file:
        os.write(file.fileno(), b"first\n")
        assert tail(file.fileno()) == "first"
        os.lseek(file.fileno(), 3, os.SEEK_SET)
        assert tail(file.fileno()) == "first"
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 3

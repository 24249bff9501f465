"""The command line where the locale is not UTF-8, and with names that are no text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.nodes import run_names
from testbed.nodes.terminal_job import _has_shell as has_shell
from testbed.orchestrator.liveness import is_stalled

EXPERIMENT = """\
# Größe
name: plain
plugins: ["pïctures.py"]
dataset: "pïctures:load"
model: mlp
training: {updates: 3, batch_size: 2}
devices: {workers: 2}
clock: virtual
compute: {distribution: exponential, mean: 100ms}
algorithms: [asgd]
"""
PLUGIN = """\
import numpy as np


def load():
    "Möglichst klein."
    images = np.arange(20 * 784, dtype=np.uint32).astype(np.uint8).reshape(20, 28, 28)
    return images, np.arange(20) % 10, images, np.arange(20) % 10
"""


def run_testbed(
    folder: Path, *arguments: str | bytes, **environment: str
) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "testbed", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_paths_and_files_are_utf_8_in_any_locale(tmp_path: Path) -> None:
    folder = tmp_path / "dónnées → x"
    folder.mkdir()
    (folder / "é.yaml").write_text(EXPERIMENT, encoding="utf-8")
    (folder / "pïctures.py").write_text(PLUGIN, encoding="utf-8")
    done = run_testbed(folder, "simulate", "é.yaml", "--out", "rü", **C_LOCALE)
    assert done[0] == 0, done
    assert "report: rü/plain/" in done[1].decode()
    status, output, errors = run_testbed(folder, "plan", "ö.yaml", **C_LOCALE)
    assert (status, output, errors.decode()) == (2, b"", "testbed: ö.yaml: there is no such file\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_the_terminal_cannot_show_is_escaped(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "é.yaml").write_text(EXPERIMENT.replace("mlp", "mlp→"), encoding="utf-8")
    status, _, errors = run_testbed(tmp_path, "plan", "é.yaml", PYTHONIOENCODING=encoding)
    assert status == 2
    assert b"Traceback" not in errors
    assert errors.startswith("testbed: é.yaml:3: ".encode(encoding, "backslashreplace"))


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(EXPERIMENT, encoding="utf-8")
    (tmp_path / "pïctures.py").write_text(PLUGIN, encoding="utf-8")
    status, _, errors = run_testbed(tmp_path, "simulate", "e.yaml", "--out", b"r\xff")
    assert status == 2
    assert b"is no name in UTF-8: name another folder by --out" in errors
    assert b"Traceback" not in errors


def test_processes_with_names_that_are_no_text_are_read() -> None:
    """A process may have any name, such as one that its length of 15 bytes cuts within a letter."""
    program = "open('/proc/self/comm', 'wb').write(b'caf\\xc3) \\xff'); print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert not run_names.is_over(f"{run_names.PREFIX}{process.pid}-0")
        assert not is_stalled(process.pid)
        assert has_shell(process.pid) in (True, False)
    finally:
        process.communicate(b"\n")

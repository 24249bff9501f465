"""What a command prints where it cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli import main

EXPERIMENT = """\
name: small
dataset: digits
model: mlp
training: {updates: 3}
devices: {workers: 2}
algorithms: [asgd]
"""


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("--help", ""),
        ("schema", ""),
        ("plan small.yaml", "1"),
        ("ls --runs .", ""),
    ],
)
def test_a_full_disk_under_the_output_is_one_sentence(
    tmp_path: Path, command: str, unbuffered: str
) -> None:
    (tmp_path / "small.yaml").write_text(EXPERIMENT, encoding="utf-8")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "testbed", *command.split()],
            cwd=tmp_path,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=300,
        )
    said = "testbed: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr.decode()) == (1, said)


def test_output_in_memory_is_no_file_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["testbed", "schema"])
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 0
    assert capsys.readouterr().out.startswith("{")


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        ("ls --runs {}", (2, "cannot be read: ")),
        ("simulate small.yaml --out {} --set compute.mean=1s", (2, "cannot be made (File name")),
        ("plan small.yaml --set dataset=cifar10", (0, "dataset cifar10 is not in ")),
        ("plan small.yaml --set dataset=mnist", (0, "dataset mnist is not in ")),
    ],
)
def test_a_folder_that_cannot_be_looked_into_is_no_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    ending: tuple[int, str],
) -> None:
    # As one of another user; root may look into all that have names.
    folder = tmp_path / ("x" * 300)
    (tmp_path / "small.yaml").write_text(EXPERIMENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(sys, "argv", ["testbed", *command.format(folder).split()])
    with pytest.raises(SystemExit) as ended:
        main()
    status, says = ending
    assert ended.value.code == status
    assert says in "".join(capsys.readouterr())

"""Refusals: the command says in a sentence, with the remedy, why a run is not possible.

Most refusals come before anything is started; a disk that fills up ends a run under way.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import ENDLESS, SMALL, CommandLine, assert_one_sentence

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]


def refused(
    command: CommandLine, content: dict[str, Any], status: int, files: int | None = None
) -> str:
    """Assert that a run, which may have so many files open, is refused; return why."""
    asked = "run", command.spec(content), "--out", command.out
    result = command.do(*asked, files=files)
    sentence = assert_one_sentence(result, status)
    assert not command.out.exists() or not command.out.is_dir() or not any(command.out.iterdir())
    return sentence


def test_an_unknown_key_is_refused(command: CommandLine) -> None:
    wrong = {("trainig" if key == "training" else key): value for key, value in SMALL.items()}
    result = command.do("run", command.spec(wrong), "--out", command.out)
    assert result.returncode == 2
    assert "spec.yaml:4" in result.stderr  # the fourth line of SMALL
    assert "trainig: unknown key; did you mean 'training'?" in result.stderr
    assert "Traceback" not in result.stderr
    assert not command.out.exists()


def test_a_missing_dataset_is_refused(
    command_with: Callable[..., CommandLine], tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    command = command_with(TESTBED_DATA=str(empty), XDG_CACHE_HOME=str(empty))
    sentence = refused(command, SMALL | {"dataset": "mnist"}, 1)
    assert "testbed data fetch mnist" in sentence
    assert str(empty) in sentence


def test_more_workers_than_the_data_serves_are_refused(command: CommandLine) -> None:
    sentence = refused(command, SMALL | {"devices": {"workers": 200}}, 2)
    assert "devices.workers" in sentence


def test_a_run_with_too_few_descriptors_is_refused(command: CommandLine) -> None:
    content = SMALL | {"devices": {"workers": 200}, "training": {"updates": 1, "batch_size": 1}}
    sentence = refused(command, content, 1, files=100)
    assert "open files" in sentence
    assert "ulimit -Hn" in sentence


def test_a_file_in_place_of_the_output_folder_is_refused(command: CommandLine) -> None:
    command.out.write_text("a file")
    assert "--out" in refused(command, SMALL, 2)
    assert command.out.read_text() == "a file"


@pytest.fixture
def mounted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A small file system with the given options."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("mounted", ["ro"], indirect=True)
def test_a_read_only_output_folder_is_refused(command: CommandLine, mounted: Path) -> None:
    command.out = mounted / "runs"
    assert "--out" in refused(command, SMALL, 2)


@pytest.mark.parametrize("mounted", ["size=16m"], indirect=True)
def test_a_disk_with_too_little_room_is_refused(command: CommandLine, mounted: Path) -> None:
    command.out = mounted
    sentence = refused(command, SMALL, 1)
    assert "the disk is full" in sentence
    assert "--out" in sentence


@pytest.mark.parametrize("mounted", ["size=96m"], indirect=True)
def test_a_run_fails_with_the_reason_when_the_disk_fills(
    command: CommandLine, mounted: Path
) -> None:
    command.out = mounted
    # No capture: the run would be refused, as the disk has no room for the capture's largest size.
    spec = ENDLESS | {"algorithms": ["asgd", "comp-asgd"], "traffic": {"capture": False}}
    started = command.start_run(spec, report=True)
    started.until_training()
    traces = started.traces()
    with (mounted / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(bytes(4096))
    assert started.wait() == 1
    traces.assert_gone()
    assert "Traceback" not in started.said
    assert "the disk is full" in started.said.splitlines()[-1]
    # Whether the second run was begun depends on the room that the first one freed.
    shown = command.do("show", "--json", "--runs", mounted)
    assert shown.returncode == 0, shown.stderr
    runs = json.loads(shown.stdout)
    assert runs[0]["updates"] >= 10
    for run in runs:
        assert run["ended"] == "failed"
        assert "the disk is full" in run["reason"]


def test_plan_starts_nothing(command: CommandLine) -> None:
    result = command.do("plan", command.spec(), "--json")
    assert result.returncode == 0, result.stderr
    (plan,) = json.loads(result.stdout)
    names = [device["name"] for device in plan["devices"]]
    assert names == ["server", "evaluator", *(f"worker-{i}" for i in range(5))]
    assert len({device["address"] for device in plan["devices"]}) == 7
    assert plan["updates"] == 200
    assert {path.name for path in command.folder.iterdir()} == {"spec.yaml", "output-0", "errors-0"}


def test_doctor_gives_a_remedy_for_every_problem(command: CommandLine) -> None:
    result = command.do("doctor", "--json")
    findings = {finding["what"]: finding for finding in json.loads(result.stdout)}
    assert findings["namespaces"]["state"] == "ok"
    missing = [name for name, finding in findings.items() if finding["state"] == "missing"]
    assert result.returncode == bool(missing)
    for finding in findings.values():
        assert (finding["state"] == "ok") == (not finding["remedy"])

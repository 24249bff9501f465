"""The command ``testbed data``: the list as JSON and as plain lines, and a refused fetch."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli.data import app
from testbed.errors import SpecError
from testbed.experiment.sections.datasets import DATASETS

Writer = Callable[[Path, int, int], None]


def test_the_list_as_json_has_each_dataset_s_place_or_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_idx: Writer
) -> None:
    write_idx(tmp_path / "mnist", 3, 3)
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = CliRunner().invoke(app, ["ls", "--json"])
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["digits"]["verified"]
    assert rows["digits"]["train_images"] == 1442
    assert rows["mnist"]["at"] == str(tmp_path / "mnist")
    assert "not the published file" in rows["mnist"]["problem"]
    assert rows["fashion-mnist"]["at"] is None
    assert "testbed data fetch fashion-mnist" in rows["fashion-mnist"]["problem"]


def test_the_list_in_a_pipe_is_one_plain_line_per_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = CliRunner().invoke(app, ["ls"]).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == list(DATASETS)
    assert lines[0].split("\t")[1:] == ["1442", "355", "", "bundled", "verified"]
    assert "None" not in "".join(lines)


def test_fetching_a_bundled_dataset_is_refused() -> None:
    result = CliRunner().invoke(app, ["fetch", "digits"])
    assert isinstance(result.exception, SpecError)

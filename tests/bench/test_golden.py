"""Results that every commit repeats: some of them here, all of them by ``make golden``."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import golden

SHARE = 40
"""One experiment of this many is simulated here."""


@pytest.mark.timeout(600)
def test_results_are_as_they_were(tmp_path: Path) -> None:
    host, expected = golden.read(golden.FILE)
    if host != golden.this_host():
        pytest.skip(f"{golden.FILE.name} holds for {host}, and this is {golden.this_host()}")
    chosen = list(golden.experiments())[::SHARE]
    found = {one["name"]: golden.result(one) for one in chosen}
    assert golden.differences(expected, found) == []


def test_the_file_has_every_experiment_once() -> None:
    _, expected = golden.read(golden.FILE)
    assert list(expected) == [one["name"] for one in golden.experiments()]
    complete = [one for one in expected.values() if one.ended == "completed"]
    assert len(complete) > 0.9 * len(expected) > 400
    assert sum(one.faults[0] != "0" for one in expected.values()) > 300


def test_what_differs_is_told_with_both_values(tmp_path: Path) -> None:
    host, expected = golden.read(golden.FILE)
    one, other = list(expected.values())[:2]
    path = tmp_path / "mine.jsonl"
    golden.write(path, host, [one, other])
    assert golden.read(path) == (host, {one.run: one, other.run: other})
    changed = {one.run: replace(one, payload=7, faults="1 x"), "new": other}
    assert golden.differences({one.run: one}, changed) == [
        f"{one.run}: payload {one.payload} → 7, faults {one.faults} → 1 x",
        "new: the file does not have it",
    ]


def test_a_file_of_another_host_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.jsonl"
    golden.write(path, golden.Host("another", "SSE", "1.0"), [])
    assert golden.main(["--file", str(path), "--only", "star-asgd"]) == 2
    assert "holds for Host(processor='another'" in capsys.readouterr().err


def test_a_result_that_differs_and_an_experiment_that_fails_are_a_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host, expected = golden.this_host(), golden.read(golden.FILE)[1]
    path = tmp_path / "mine.jsonl"
    golden.write(path, host, [replace(expected["star-asgd"], updates=59)])
    arguments = ["--file", str(path), "--processes", "1", "--only"]
    assert golden.main([*arguments, "star-asgd"]) == 1
    assert "star-asgd: updates 59 → 60" in capsys.readouterr().err
    broken = {"name": "broken", "devices": {"workers": 0}, "network": {}}
    (told,) = golden.carry_out_all([broken], 1)
    assert isinstance(told, str) and told.startswith("broken: ValidationError")

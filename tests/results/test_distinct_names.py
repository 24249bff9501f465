"""The short names that tell runs from each other."""

from pathlib import Path

import pytest

from testbed.results.reading.curves import curves_of
from testbed.results.reading.distinct_names import distinct_names
from testbed.results.reading.recorded_run import RecordedRun
from tests.results.conftest import WriteRun


@pytest.fixture
def swept(write_run: WriteRun) -> list[RecordedRun]:
    """Runs of two seeds and two learning rates."""
    runs = []
    for number in range(4):
        seed, rate = 1 + number // 2, (0.1, 0.02)[number % 2]
        directory = write_run("asgd", f"rates/sweep-{number}", seed=seed)
        _extend(directory, f"training: {{learning_rate: {rate}, batch_size: 10}}\n")
        runs.append(RecordedRun.load(directory))
    return runs


def _extend(directory: Path, lines: str) -> None:
    with (directory / "spec.yaml").open("a") as file:
        file.write(lines)


def test_runs_of_a_sweep_are_called_by_the_keys_that_they_differ_in(
    swept: list[RecordedRun],
) -> None:
    assert distinct_names(swept) == (
        "asgd, learning_rate 0.1, seed 1",
        "asgd, learning_rate 0.02, seed 1",
        "asgd, learning_rate 0.1, seed 2",
        "asgd, learning_rate 0.02, seed 2",
    )
    names = [curve.name for curve in curves_of(swept)]
    assert names == ["asgd, learning_rate 0.1", "asgd, learning_rate 0.02"]


def test_the_whole_key_stands_where_its_last_part_would_be_two(write_run: WriteRun) -> None:
    runs = []
    for number, (computing, waiting) in enumerate(
        [("10ms", "20ms"), ("10ms", "30ms"), ("5ms", "20ms")]
    ):
        directory = write_run("asgd", f"times/{number}")
        _extend(directory, f"compute: {{mean: {computing}}}\nwaiting: {{mean: {waiting}}}\n")
        runs.append(RecordedRun.load(directory))
    assert distinct_names(runs) == (
        "asgd, compute.mean 10ms, waiting.mean 20ms",
        "asgd, compute.mean 10ms, waiting.mean 30ms",
        "asgd, compute.mean 5ms, waiting.mean 20ms",
    )


def test_a_key_that_one_of_them_lacks_is_null(write_run: WriteRun) -> None:
    one, two = write_run("asgd", "clip/1"), write_run("asgd", "clip/2")
    _extend(one, "clip: null\n")
    _extend(two, 'clip: "5\\e[31m"\n')
    names = distinct_names([RecordedRun.load(one), RecordedRun.load(two)])
    assert names == ("asgd, clip null", "asgd, clip 5\\x1b[31m")


def test_runs_that_differ_in_much_are_called_by_their_ids(write_run: WriteRun) -> None:
    runs = []
    for number in range(2):
        directory = write_run("asgd", f"much/{number}")
        _extend(directory, "".join(f"key-{i}: {number}\n" for i in range(4)))
        runs.append(RecordedRun.load(directory))
    assert distinct_names(runs) == ("much/0/asgd", "much/1/asgd")
    (runs[0].directory / "spec.yaml").write_text("{")
    again = [RecordedRun.load(run.directory) for run in runs]
    assert distinct_names(again) == ("much/0/asgd", "much/1/asgd")

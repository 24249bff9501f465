"""Estimates: a short run of each kind says how long runs of the kind take."""

from pathlib import Path

import pytest

from testbed.experiment.combinations import load_sweep
from testbed.experiment.load import parse
from testbed.sweeps import estimate
from testbed.sweeps.one_run import Result


def test_each_kind_is_measured_once_and_shortly(file: Path, tmp_path: Path) -> None:
    sweep = load_sweep(file, ["training.updates=9000", "sweep.devices.workers=[2, 3]"])
    specs = [spec for point in sweep.points for spec in point.spec.runs().values()]
    jobs = estimate.measuring(specs, tmp_path, {})
    assert len(jobs) == 4  # two algorithms, two numbers of workers
    shortened = [parse(job.spec, tmp_path / "spec.yaml") for job in jobs.values()]
    assert {spec.training.updates for spec in shortened} == {estimate.LEAST}
    first = next(iter(jobs.values()))
    assert first.title == "measuring asgd digits mlp 2 workers"


def test_a_speed_foresees_a_longer_run(file: Path, tmp_path: Path) -> None:
    sweep = load_sweep(file, ["training.updates=1000"])
    specs = [spec for point in sweep.points for spec in point.spec.runs().values()]
    jobs = estimate.measuring(specs, tmp_path, {})
    one, other = jobs.values()
    one.result = Result("completed", None, seconds=3.0, training_seconds=2.0, updates=100)
    other.result = Result("failed", "for some reason")
    speeds = estimate.speeds(jobs)
    assert list(speeds) == [estimate.kind(specs[0])]
    assert speeds[estimate.kind(specs[0])].seconds(specs[0]) == pytest.approx(1 + 1000 / 50)


def test_runs_side_by_side_take_as_long_as_the_longest_row() -> None:
    assert estimate.altogether([4, 3, 2, 1], 2) == 5
    assert estimate.altogether([10, 1, 1], 2) == 10
    assert estimate.altogether([1, 2, 3], 1) == 6


def test_what_is_known_or_short_is_not_measured(file: Path, tmp_path: Path) -> None:
    sweep = load_sweep(file, ["training.updates=100", "sweep.seed=[1]"])
    specs = [spec for point in sweep.points for spec in point.spec.runs().values()]
    assert not estimate.measuring(specs, tmp_path, {})  # no kind has 4 × 100 updates
    longer = [spec for _ in range(2) for spec in specs]
    assert len(estimate.measuring(longer, tmp_path, {})) == 2
    known = {estimate.kind(specs[0]): estimate.Speed(10, 1)}
    assert list(estimate.measuring(longer, tmp_path, known)) == [estimate.kind(specs[1])]

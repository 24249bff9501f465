"""Estimates of how long runs take: from real updates, from earlier runs, and added up."""

from pathlib import Path

import pytest

from reproduction.display import Shown
from reproduction.estimate import Speed, altogether, keep, kind, known, measure, read
from reproduction.papers.adacomp.parts import FIG3, TABLE2
from reproduction.papers.adacomp.scales import FULL, TINY
from reproduction.runs import Folder
from reproduction.series import load_run
from tests.reproduction.conftest import WriteRun


def test_jobs_at_once_take_as_long_as_the_busiest_place() -> None:
    assert altogether([5, 3, 3], 1) == 11
    assert altogether([5, 3, 3], 2) == 6
    assert altogether([5], 8) == 5


def test_a_run_takes_time_for_updates_evaluations_start_and_end() -> None:
    spec = load_run(FIG3.series[0], FULL, 1)
    assert Speed(100.0, 2.0, 10.0).seconds(spec) == 10 + 2500 + 250 * 2


def test_runs_of_one_speed_are_of_one_kind() -> None:
    asgd, comp, _, ada, ada_small = (load_run(one, FULL, 1) for one in FIG3.series)
    assert kind(asgd, "docker") != kind(comp, "docker") == kind(ada, "docker")
    assert kind(ada, "simulation") != kind(ada_small, "simulation")
    assert kind(ada, "simulation") == kind(load_run(FIG3.series[3], FULL, 2), "simulation")


def test_speeds_are_known_from_earlier_runs(tmp_path: Path, write_run: WriteRun) -> None:
    spec = load_run(FIG3.series[0], FULL, 1).model_copy(update={"engine": "simulation"})
    write_run(spec, [10.0, 20.0])
    write_run(load_run(FIG3.series[3], FULL, 1), [10.0], "interrupted")
    speeds = known(Folder(tmp_path / "runs").all)
    assert speeds == {kind(spec, "simulation"): Speed(100.0, 0.0, 10.0)}


def test_kinds_are_measured_by_real_updates_and_kept(tmp_path: Path) -> None:
    spec = load_run(TABLE2.series[0], TINY, 1).model_copy(update={"engine": "simulation"})
    name = kind(spec, "simulation")
    with Shown(1) as shown:
        speeds, caught = measure({name: spec}, 1, shown)
    assert caught is None
    assert 1 < speeds[name].updates < 100_000
    assert 0 <= speeds[name].evaluation < 60
    assert 0 < speeds[name].around < 300
    keep(tmp_path / "speeds.json", speeds)
    assert read(tmp_path / "speeds.json") == speeds
    (tmp_path / "speeds.json").write_text("[")
    assert read(tmp_path / "speeds.json") == {}
    assert read(tmp_path / "none.json") == {}


@pytest.mark.parametrize("at_once", [1, 4])
def test_no_jobs_take_no_time(at_once: int) -> None:
    assert altogether([], at_once) == 0

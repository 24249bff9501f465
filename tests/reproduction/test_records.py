"""The records of runs that are kept next to the pages, from runs as the testbed writes them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reproduction import record_files
from reproduction.diagnosed import Diagnosed
from reproduction.driver import Order
from reproduction.measures import lines_of
from reproduction.pages import write_pages
from reproduction.papers.adacomp import PAPER
from reproduction.papers.adacomp.parts import FIG1, FIG3, FIG4, PARTS, WIDE
from reproduction.papers.adacomp.scales import FULL, QUICK
from reproduction.record import wall_seconds
from reproduction.records import Records
from reproduction.runs import Folder, identity
from reproduction.tables import runs
from testbed.errors import TestbedError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.sweeps.estimate import kind, of_runs
from tests.reproduction.conftest import PUSH, WriteRun, spec_of

ADACOMP = FIG3.series[-1]
CURVE = [10.0, 90.0, 98.0]
HEADINGS = "run,iteration,accuracy,payload_bytes,wire_bytes,time,loss"


def _told(directory: Path, **fields: object) -> RecordedRun:
    path = directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | fields), encoding="utf-8")
    return RecordedRun.load(directory)


def test_the_time_between_the_sessions_of_a_run_does_not_count(write_run: WriteRun) -> None:
    directory = write_run(spec_of(FIG1.series[0], QUICK, 1), [10.0, 90.0])
    day = "2026-11-01T"
    moments = {"started": f"{day}08:00:00+00:00", "finished": f"{day}08:10:00+00:00"}
    assert wall_seconds(_told(directory, **moments)) == 600
    sessions = [
        {"version": 100, "host_seconds": 50.0, "at": f"{day}08:05:00+00:00"},
        {"version": 300, "host_seconds": 120.5, "at": f"{day}08:09:00+00:00"},
    ]
    assert wall_seconds(_told(directory, **moments, resumed=sessions)) == 180.5


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(PAPER, PARTS, FULL, (1,), "simulation", tmp_path / "runs")


def _take(order: Order, pages: Path) -> Records:
    records = Records(pages)
    records.take(order.runs(), Folder(order.out), PAPER.suffix(order.scale))
    return records


def test_a_record_is_read_as_it_was_written(
    order: Order, tmp_path: Path, write_run: WriteRun
) -> None:
    spec = spec_of(ADACOMP, FULL, 1)
    write_run(spec, [*CURVE, float("nan")])
    (taken,) = _take(order, tmp_path).of(identity(spec))
    (read,) = Records(tmp_path).of(identity(spec))
    assert read.spec == taken.spec
    assert read.result == taken.result
    assert read.result.engine == spec.devices.runtime
    assert (read.result.wire, read.result.modelled) == ("not checked", False)
    assert (read.result.workers, read.result.crashed) == (200, 0)
    for name in ("iteration", "accuracy", "payload_bytes", "wire_bytes", "time", "loss"):
        kept, seen = getattr(read.evaluations, name), getattr(taken.evaluations, name)
        assert kept.dtype == seen.dtype
        np.testing.assert_array_equal(kept, seen)
    assert read.evaluations.payload_bytes.tolist() == [0, 1000 * PUSH, 2000 * PUSH, 3000 * PUSH]


def test_means_are_in_the_rows_of_their_evaluations_and_in_their_order(
    order: Order, tmp_path: Path, write_run: WriteRun
) -> None:
    spec = spec_of(ADACOMP, FULL, 1)
    write_run(spec, CURVE)
    _take(order, tmp_path)
    [(name, record)] = record_files.read(tmp_path / "records").items()
    at = record.evaluations.iteration.tolist()
    between = [at[0] + 1, at[1], at[1] + 1, at[2]]
    means = {"k": np.array([1.0, 2.5, 3.0, 4.0]), "gain": np.array([0.5, np.nan, -1.0, 0.0])}
    bare = np.full(len(at), np.nan)
    curve = replace(record.evaluations, accuracy=bare, loss=bare)
    written = replace(record, evaluations=curve, diagnostics=Diagnosed(np.array(between), means))
    record_files.write(tmp_path / "again", {name: written})
    read = record_files.read(tmp_path / "again")[name]
    assert read.diagnostics.iteration.tolist() == between
    for key, values in means.items():
        np.testing.assert_array_equal(read.diagnostics.values[key], values)
    assert read.evaluations.iteration.tolist() == at
    assert np.isnan(read.evaluations.accuracy).all() and np.isnan(read.evaluations.loss).all()
    lines = (tmp_path / "again" / "runs.csv").read_text().splitlines()
    assert len(lines) == 1 + len({*at, *between})
    assert not any(line.endswith(",") for line in lines)


def test_a_run_of_two_figures_is_recorded_once_and_of_two_engines_twice(
    order: Order, tmp_path: Path, write_run: WriteRun
) -> None:
    (wide,) = (one for one in WIDE.series if one.name == ADACOMP.name)
    spec = spec_of(wide, FULL, 1)
    write_run(spec, CURVE)
    write_run(spec.model_copy(update={"engine": "simulation"}), CURVE)
    records = _take(order, tmp_path)
    names = sorted(record_files.read(tmp_path / "records"))
    runtime = spec.devices.runtime
    assert names == [f"fig3-wide-adacomp-0.01-seed1-{name}" for name in (runtime, "simulator")]
    for part, name in ((WIDE, wide.name), (FIG4, "60000-one-0.01")):
        line = lines_of(part.series, order.scale, order.seeds, records)[name]
        assert [run.result.engine for run in line.runs] == [runtime]
        assert [twin.result.engine for twin in line.twins.values()] == ["simulator"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "| equal; wire modelled ÷ measured 1.0000 |"),
        ({"parameters_sha256": "0"}, "| **differs** (parameters) |"),
        ({"accuracy": [10.0, 90.0, 98.1]}, "| **differs** (accuracy) |"),
        ({"payload_bytes": [0, 1, 2]}, "| **differs** (payload bytes) |"),
        ({"cpu": "another", "parameters_sha256": "0"}, "| on another processor, which rounds "),
    ],
    ids=lambda value: ",".join(value) or "nothing" if isinstance(value, dict) else "",
)
def test_emulation_and_simulation_are_compared_on_equal_processors(
    order: Order, tmp_path: Path, write_run: WriteRun, change: dict[str, Any], told: str
) -> None:
    spec = spec_of(ADACOMP, FULL, 1)
    write_run(spec, CURVE)
    write_run(spec.model_copy(update={"engine": "simulation"}), CURVE)
    line = lines_of((ADACOMP,), FULL, (1,), _take(order, tmp_path))[ADACOMP.name]
    simulated = line.twins[1]
    columns: dict[str, Any] = {
        name: np.array(value) for name, value in change.items() if isinstance(value, list)
    }
    fields = {name: value for name, value in change.items() if isinstance(value, str)}
    other = replace(
        simulated,
        result=simulated.result.model_copy(update=fields),
        evaluations=replace(simulated.evaluations, **columns),
    )
    assert told in runs({ADACOMP.name: replace(line, twins={1: other})})


@pytest.mark.usefixtures("undrawn")
def test_pages_are_made_again_without_the_runs(
    order: Order, tmp_path: Path, write_run: WriteRun
) -> None:
    order = replace(order, parts=(FIG1, FIG3))
    write_run(spec_of(ADACOMP, FULL, 1), [*CURVE] * 3)
    folder = tmp_path / "pages"
    before = [path.read_text() for path in write_pages(order, folder)[0]]
    assert any("98.00 (1 seed)" in page for page in before)
    elsewhere = replace(order, out=tmp_path / "none")
    assert [path.read_text() for path in write_pages(elsewhere, folder)[0]] == before
    # A new run is added to them.
    write_run(spec_of(FIG1.series[0], FULL, 1), [*CURVE] * 3)
    page = next(path for path in write_pages(order, folder)[0] if path.stem == "fig3").read_text()
    assert "runs of 2 of 5 lines are complete" in page


def test_a_later_run_replaces_an_earlier_one(
    order: Order, tmp_path: Path, write_run: WriteRun
) -> None:
    spec = spec_of(ADACOMP, FULL, 1)
    for best in (97.0, 96.0):
        write_run(spec, [10.0, best])
        (record,) = _take(order, tmp_path).of(identity(spec))
        assert record.evaluations.accuracy.max() == best


def test_each_scale_has_its_own_records(order: Order, tmp_path: Path, write_run: WriteRun) -> None:
    for scale in (FULL, QUICK):
        write_run(spec_of(ADACOMP, scale, 1), CURVE)
        _take(replace(order, scale=scale), tmp_path)
    assert len(record_files.read(tmp_path / "records")) == 2


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("runs.csv", "a,b\n", "its first row is not run,iteration,accuracy,payload_bytes"),
        ("runs.csv", f"{HEADINGS}\n", "has no evaluation"),
        ("runs.csv", f"{HEADINGS}\n1,1,x,2,3,,\n", "'x'"),
        ("runs.csv", f"{HEADINGS}\nx,1,1,2,3,,\n", "'x'"),
        ("runs.csv", None, "No such file"),
        ("runs.yaml", "runs: {one: {number: 1, experiment: none}}", "Field required"),
        ("runs.yaml", "{", "expected"),
        ("runs.yaml", "[]", "valid dictionary"),
    ],
)
def test_files_that_hold_no_records_are_refused(
    recorded: Path, file: str, content: str | None, told: str
) -> None:
    path = recorded / "records" / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(TestbedError) as raised:
        Records(recorded)
    assert str(raised.value).startswith(f"{path} holds no records of runs: ")
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"experiment": "another"}, "'another'"),
        ({"values": {"training.nothing": 1}}, "nothing"),
        ({"values": {"algorithms.7.name": "asgd"}}, "out of range"),
        ({"without": ["loss.name"]}, "'loss'"),
    ],
    ids=str,
)
def test_a_run_that_does_not_fit_its_experiment_is_refused(
    recorded: Path, change: dict[str, Any], told: str
) -> None:
    path = recorded / "records" / "runs.yaml"
    content = yaml.safe_load(path.read_text())
    (run,) = content["runs"].values()
    path.write_text(yaml.safe_dump(content | {"runs": {"one": run | change}}))
    with pytest.raises(TestbedError, match="holds no records of runs") as raised:
        Records(recorded)
    assert told in str(raised.value)


def test_a_run_that_is_taken_out_of_the_file_is_gone_and_the_others_keep_their_curves(
    order: Order, tmp_path: Path, write_run: WriteRun
) -> None:
    for seed, best in ((1, 91.0), (2, 92.0), (3, 93.0)):
        write_run(spec_of(ADACOMP, FULL, seed), [10.0, best])
    _take(replace(order, seeds=(1, 2, 3)), tmp_path)
    path = tmp_path / "records" / "runs.yaml"
    content = yaml.safe_load(path.read_text())
    del content["runs"][next(name for name in content["runs"] if "seed1" in name)]
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    for _ in range(2):
        found = record_files.read(tmp_path / "records")
        kept = {one.seed: one.evaluations.accuracy.max() for one in found.values()}
        assert kept == {2: 92.0, 3: 93.0}
        record_files.write(tmp_path / "records", found)


_LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab.", max_size=3)
_TREES = st.recursive(
    _LEAVES,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.text("ab.", min_size=1, max_size=2), below)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from("xyz"), _TREES), st.dictionaries(st.sampled_from("xyz"), _TREES)
)
def test_what_a_run_has_of_its_own_makes_its_spec_of_its_experiment(
    base: dict[str, Any], own: dict[str, Any]
) -> None:
    values, without = record_files.differences(base, own)
    assert record_files.with_own(base, values, without) == own
    assert record_files.differences(own, own) == ({}, [])


@pytest.fixture
def recorded(order: Order, tmp_path: Path, write_run: WriteRun) -> Path:
    """A folder of pages with a record."""
    write_run(spec_of(ADACOMP, FULL, 1), CURVE)
    _take(order, tmp_path)
    return tmp_path


def test_speeds_are_known_from_complete_runs_of_this_host(
    tmp_path: Path, write_run: WriteRun
) -> None:
    spec = spec_of(FIG1.series[0], FULL, 1).model_copy(update={"engine": "simulation"})
    write_run(spec, [10.0, 20.0])
    other = spec.model_copy(update={"engine": "emulation"})
    _told(write_run(other, [10.0]), host={"name": "elsewhere"})
    speeds = of_runs(Folder(tmp_path / "runs").complete)
    assert list(speeds) == [kind(spec)]
    assert speeds[kind(spec)].updates == pytest.approx(100.0)

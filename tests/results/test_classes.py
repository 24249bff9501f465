"""The table of what each device class sent, from the run directory alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.classes import HEADINGS, class_rows
from testbed.runs.outcome import manifest

CLASSES = [
    {"name": "fast", "devices": [0, 2]},
    {"name": "slow <b>", "devices": [1]},
    {"name": "dead", "devices": [3]},
]


@pytest.fixture
def run(write_run: Any) -> RecordedRun:
    directory: Path = write_run(count=6, classes=CLASSES)
    old = parquet.read_table(directory / "updates.parquet")
    columns = {
        "worker": np.array([0, 2, 1, 0, 2, 1, 1], np.int32),
        "staleness": np.array([0, 1, 5, 2, 3, 9, 7]),
        "payload_bytes": np.array([10, 20, 30, 40, 50, 60, 0]),
        # The last but one was too late; the last only reports that its worker has finished.
        "applied": np.array([True] * 5 + [False] * 2),
    }
    count = len(columns["worker"])
    rest = {name: np.resize(old.column(name).to_numpy(), count) for name in old.column_names}
    parquet.write_table(pa.table(rest | columns), directory / "updates.parquet")
    return RecordedRun.load(directory)


def test_the_table_counts_updates_staleness_and_bytes_by_class(run: RecordedRun) -> None:
    fast, slow, dead = class_rows(run)
    assert (fast.name, fast.devices, fast.sent, fast.applied, fast.dropped) == ("fast", 2, 4, 4, 0)
    assert (slow.devices, slow.sent, slow.applied, slow.dropped) == (1, 2, 1, 1)
    assert (fast.share, slow.share, dead.share) == (4 / 6, 2 / 6, 0)
    assert (fast.staleness_mean, slow.staleness_mean, dead.staleness_mean) == (1.5, 5.0, None)
    assert (fast.payload_bytes, slow.payload_bytes, dead.payload_bytes) == (120, 90, 0)
    assert slow.cells == ("slow <b>", "1", "2", "1", "1", "33.33 %", "5.0", "90 B")
    assert len(slow.cells) == len(HEADINGS)


def test_the_report_escapes_the_names_of_classes(run: RecordedRun, tmp_path: Path) -> None:
    text = write_report([run], tmp_path / "report.html").read_text()
    assert '<h2 id="classes">Device classes</h2>' in text
    assert "slow &lt;b&gt;" in text
    assert "slow <b>" not in text
    assert "33.33 %" in text


def test_runs_without_classes_have_no_table(write_run: Any, tmp_path: Path) -> None:
    run = RecordedRun.load(write_run())
    assert class_rows(run) == ()
    assert "Device classes" not in write_report([run], tmp_path / "report.html").read_text()


SPEC: dict[str, Any] = {
    "name": "classes",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 10},
    "algorithms": ["asgd"],
    "devices": {"workers": 10},
}


def told(**changes: Any) -> list[dict[str, Any]]:
    (one,) = plan(Spec.model_validate(SPEC | changes))
    classes: list[dict[str, Any]] = manifest(one)["classes"]
    return classes


def test_the_manifest_lists_the_devices_of_each_class() -> None:
    assert told() == []
    classes = [{"name": "b", "share": "70%"}, {"name": "a", "share": "30%", "uplink": "1mbit"}]
    named = told(devices={"workers": 10, "classes": classes})
    assert [one["name"] for one in named] == ["b", "a"]
    assert sorted(named[0]["devices"] + named[1]["devices"]) == list(range(10))
    assert len(named[1]["devices"]) == 3
    # Factors make classes too, of the same devices.
    factors = [{"share": "70%", "factor": 1}, {"share": "30%", "factor": 10}]
    found = told(waiting={"mean": "1s", "classes": factors})
    assert {one["name"]: one["devices"] for one in found} == {
        "waiting-x1": named[0]["devices"],
        "waiting-x10": named[1]["devices"],
    }

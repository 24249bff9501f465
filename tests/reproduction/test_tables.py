"""The pages' tables, of runs as the testbed writes them."""

import json
from pathlib import Path

from reproduction.paper import PARTS
from reproduction.scale import QUICK, load_run
from reproduction.tables import wall_seconds
from testbed.results.reading import Run
from tests.reproduction.conftest import WriteRun


def _told(directory: Path, **fields: object) -> Run:
    path = directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | fields), encoding="utf-8")
    return Run.load(directory)


def test_what_is_between_the_sessions_of_a_run_is_no_wall_time(write_run: WriteRun) -> None:
    directory = write_run(load_run(PARTS["fig1"].series[0], QUICK, 1), [10.0, 90.0])
    day = "2026-11-01T"
    moments = {"started": f"{day}08:00:00+00:00", "finished": f"{day}08:10:00+00:00"}
    assert wall_seconds(_told(directory, **moments)) == 600
    sessions = [
        {"version": 100, "host_seconds": 50.0, "at": f"{day}08:05:00+00:00"},
        {"version": 300, "host_seconds": 120.5, "at": f"{day}08:09:00+00:00"},
    ]
    assert wall_seconds(_told(directory, **moments, resumed=sessions)) == 180.5

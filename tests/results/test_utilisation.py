"""The table of how busy devices were: from a run directory to ``show`` and the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from testbed import number_text as q
from testbed.cli import app
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.device_use_table import (
    MOST_DEVICES,
    headings,
    in_words,
    utilisation_rows,
)
from tests.results.conftest import WriteRun


def device(name: str, cpu: float | None, up: float | None) -> dict[str, Any]:
    known = {"cpu_source": "control group", "cpu_window": 2.0, "cpu_limit": 1.0}
    return {
        "device": name,
        "part": name.partition("-")[0],
        "machine": None,
        **(known if cpu is not None else dict.fromkeys(known)),
        "cpu_seconds": None if cpu is None else 2 * cpu,
        "cpu_utilisation": cpu,
        "bytes_source": "counted",
        "bytes_window": 2.0,
        "sent_bytes": round((up or 1) * 2_500_000),
        "received_bytes": 10**6,
        "uplink_rate": None if up is None else 10_000_000,
        "downlink_rate": 10_000_000,
        "uplink_utilisation": up,
        "downlink_utilisation": 0.4,
    }


def write(directory: Path, *devices: dict[str, Any]) -> RecordedRun:
    parquet.write_table(pa.Table.from_pylist(list(devices)), directory / "utilisation.parquet")
    return RecordedRun.load(directory)


SOME = (device("worker-0", 0.5, 0.2), device("worker-1", 0.7, 0.6), device("server", None, None))


def test_a_part_has_its_mean_and_extremes_and_each_of_a_few_devices_a_row(
    write_run: WriteRun,
) -> None:
    assert utilisation_rows(write(write_run(), *SOME)) == [
        ("2 workers", "60 % (50–70 %)", "1.00 MB each", "40 % (20–60 %)", "1.00 MB each", "40 %"),
        ("worker-0", "50 %", "500 kB", "20 %", "1.00 MB", "40 %"),
        ("worker-1", "70 %", "1.50 MB", "60 %", "1.00 MB", "40 %"),
        ("server", q.UNKNOWN, "2.50 MB", q.UNKNOWN, "1.00 MB", "40 %"),
    ]


def test_a_run_whose_devices_have_energies_has_a_column_and_a_sum_of_them(
    write_run: WriteRun,
) -> None:
    joules = {"idle_watts": 2.0, "busy_watts": 5.0, "on_seconds": 2.0, "joules": 1500.0}
    energy = {"devices": 2, "joules": 3000.0, "remarks": ["some are missing"]}
    directory = write_run()
    summary = directory / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"energy": energy}))
    run = write(directory, *(one | joules for one in SOME[:2]), SOME[2] | dict.fromkeys(joules))
    assert headings(run)[-1] == "energy"
    assert [cells[-1] for cells in utilisation_rows(run)] == [
        "1.5 kJ each",
        "1.5 kJ",
        "1.5 kJ",
        q.UNKNOWN,
    ]
    assert in_words(run).endswith("Energy: 3 kJ of 2 devices together. Some are missing.")


def test_a_run_of_a_version_without_energy_says_why_it_has_none(
    write_run: WriteRun, runs_root: Path
) -> None:
    run = write(write_run(), *SOME)
    assert "energy" not in headings(run)
    assert "No energy is known: the devices have no figures of power" in in_words(run)
    assert np.isnan(run.evaluations.joules).all()
    asked = CliRunner().invoke(app, ["compare", "latest", "--runs", str(runs_root), "--energy"])
    assert asked.exit_code != 0
    assert "--energy: no energy is known: the devices have no figures of power" in str(
        asked.exception
    )


def test_many_devices_have_one_row(write_run: WriteRun) -> None:
    many = [device(f"worker-{i}", 0.5, 0.5) for i in range(MOST_DEVICES + 1)]
    (row,) = utilisation_rows(write(write_run(), *many))
    assert row[:2] == ("21 workers", "50 %")


def test_show_and_the_report_have_the_table(
    write_run: WriteRun, runs_root: Path, tmp_path: Path
) -> None:
    run = write(write_run(), *SOME)
    assert in_words(run).startswith("Processor: the processor time of a device's processes")
    shown = CliRunner().invoke(app, ["show", "--runs", str(runs_root)])
    assert shown.exit_code == 0, shown.output
    assert "processor in use" in shown.stdout and "60 % (50–70 %)" in shown.stdout
    (told,) = json.loads(
        CliRunner().invoke(app, ["show", "--runs", str(runs_root), "--json"]).stdout
    )
    assert told["devices"][1]["cpu_utilisation"] == 0.7
    text = write_report([run], tmp_path / "report.html").read_text()
    assert "How busy devices were" in text and "60 % (50–70 %)" in text


def test_a_run_without_the_table_says_nothing_and_a_broken_one_names_the_file(
    write_run: WriteRun,
) -> None:
    run = RecordedRun.load(write_run())
    assert utilisation_rows(run) == [] and in_words(run) == ""
    (run.directory / "utilisation.parquet").write_bytes(b"no table")
    with pytest.raises(NoRunError, match=r"utilisation\.parquet cannot be read"):
        utilisation_rows(RecordedRun.load(run.directory))

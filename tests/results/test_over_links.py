"""The table and the drawing of a run's links: from its directory to ``show`` and the report."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from testbed import number_text as q
from testbed.cli import app
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.link_traffic_table import (
    HEADINGS,
    MOST_ROUTERS,
    link_use_rows,
    picture_of,
)
from tests.results.conftest import WriteRun


def link(node: str, number: int, router: str = "core", *, up: int = 0, **changes: Any) -> list[Any]:
    """Return the rows of a link of 10 Mbit/s, with ``up`` bytes up and twice as many down."""
    device = node.startswith(("worker", "server"))
    base: dict[str, Any] = {
        "link": number,
        "node": node,
        "router": router,
        "device": device,
        "rate": 10_000_000,
        "delay": 0.0,
        "frames": 5,
        "dropped": 0,
        "seconds": 2.0,
    }
    return [
        base | {"direction": direction, "bytes": size, "utilisation": 8 * size / 2e7} | changes
        for direction, size in (("uplink", up), ("downlink", 2 * up))
    ]


def write(directory: Path, *links: list[Any]) -> RecordedRun:
    """Write the table of links into a run directory, and load the run."""
    (directory / "traffic").mkdir(exist_ok=True)
    table = pa.Table.from_pylist([row for one in links for row in one])
    parquet.write_table(table, directory / "traffic" / "links.parquet")
    return RecordedRun.load(directory)


SMALL = (
    link("server", 0, up=10**6, rate=None, utilisation=None),
    link("worker-0", 2, "campus", up=10**5),
    link("worker-1", 3, "campus", up=2 * 10**5),
    link("campus", 4, up=3 * 10**5),
)


def test_servers_and_aggregators_have_rows_of_their_own(write_run: WriteRun) -> None:
    names = ("server-0", "server-1", "aggregator-0", "aggregator-1", "worker-0")
    links = [link(name, number, device=True) for number, name in enumerate(names)]
    rows = link_use_rows(write(write_run(), *links))
    assert [row[0] for row in rows] == ["2 servers", "2 aggregators", "worker-0"]


def test_devices_that_are_alike_are_one_row(write_run: WriteRun) -> None:
    rows = link_use_rows(write(write_run(), *SMALL))
    assert rows == [
        ("server", "no limit", "1.00 MB", q.UNKNOWN, "no limit", "2.00 MB", q.UNKNOWN),
        (
            "2 workers",
            "10 Mbit/s",
            "100–200 kB each",
            "4.0–8.0 %",
            "10 Mbit/s",
            "200–400 kB each",
            "8.0–16 %",
        ),
        ("campus to core", "10 Mbit/s", "300 kB", "12 %", "10 Mbit/s", "600 kB", "24 %"),
    ]


def test_bytes_that_only_a_lost_host_has_counted_are_unknown(
    write_run: WriteRun, tmp_path: Path
) -> None:
    unknown = {"bytes": None, "frames": None, "dropped": None, "utilisation": None}
    lost = link("worker-0", 2, "campus", up=10**5)
    lost[0] |= unknown
    run = write(write_run(), lost, *SMALL[2:])
    assert link_use_rows(run)[0][2:4] == ("200 kB each", "8.0 %")
    alone = write(run.directory, lost, SMALL[0])
    assert link_use_rows(alone)[0][2:] == (q.UNKNOWN, q.UNKNOWN, "10 Mbit/s", "200 kB", "8.0 %")
    assert write_report([alone], tmp_path / "report.html").exists()
    older = write(run.directory, lost[1:], *SMALL[2:])
    assert [cells[0] for cells in link_use_rows(older)] == ["worker-1", "campus to core"]
    assert write_report([older], tmp_path / "report.html").exists()


def test_devices_of_other_classes_have_rows_of_their_own(write_run: WriteRun) -> None:
    classes = [{"name": "phones", "devices": [1]}, {"name": "boards", "devices": [0]}]
    rows = link_use_rows(write(write_run(classes=classes), *SMALL))
    assert [cells[0] for cells in rows[1:3]] == ["worker-0 (boards)", "worker-1 (phones)"]


def test_of_many_routers_the_busiest_have_rows(write_run: WriteRun) -> None:
    many = [link(f"r{i}", 10 + i, up=1000 * i) for i in range(MOST_ROUTERS + 15)]
    rows = link_use_rows(write(write_run(), *many))
    names = [cells[0] for cells in rows]
    assert len(names) == MOST_ROUTERS + 2
    assert names[0] == f"r{MOST_ROUTERS + 14} to core"
    assert names[-2:] == ["14 more links between routers", "1 link without traffic"]


def test_show_and_the_report_have_the_network(
    write_run: WriteRun, runs_root: Path, tmp_path: Path
) -> None:
    graph = {"source": "a <graph>", "positions": {"campus": [1.0, 2.0]}}
    run = write(write_run(network=graph), *SMALL)
    drawn = picture_of(run)
    assert drawn is not None and drawn.positions == {"campus": (1.0, 2.0)}
    shown = CliRunner().invoke(app, ["show", "--runs", str(runs_root)])
    assert shown.exit_code == 0, shown.output
    assert HEADINGS[1] in shown.stdout and "100–200 kB each" in shown.stdout
    (told,) = json.loads(
        CliRunner().invoke(app, ["show", "--runs", str(runs_root), "--json"]).stdout
    )
    assert told["over_links"][1]["bytes"] == 2 * 10**6
    text = write_report([run], tmp_path / "report.html").read_text()
    assert '<h2 id="network">Network</h2>' in text and "100–200 kB each" in text
    (drawing,) = re.findall(r'<svg [^>]*class="network".*?</svg>', text, re.DOTALL)
    assert "↑ 300 kB, 12 %" in drawing and "2.0 s of training" in drawing


def test_modelled_bytes_and_the_virtual_clock_are_named(write_run: WriteRun) -> None:
    run = write(write_run(engine="simulation", clock="virtual"), *SMALL)
    drawn = picture_of(run)
    assert drawn is not None
    (note,) = drawn.notes
    assert note.startswith("Bytes modelled ") and "by the virtual clock" in note


def test_an_older_run_has_its_report_without_the_network(
    write_run: WriteRun, runs_root: Path, tmp_path: Path
) -> None:
    run = RecordedRun.load(write_run())
    assert link_use_rows(run) == [] and picture_of(run) is None
    assert 'id="network"' not in write_report([run], tmp_path / "report.html").read_text()
    assert CliRunner().invoke(app, ["show", "--runs", str(runs_root)]).exit_code == 0


@pytest.mark.parametrize("damage", ["cut off", "of another kind"])
def test_a_table_that_cannot_be_read_is_an_error(write_run: WriteRun, damage: str) -> None:
    run = write(write_run(), *SMALL)
    path = run.directory / "traffic" / "links.parquet"
    if damage == "cut off":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        parquet.write_table(pa.table({"link": [1]}), path)
    with pytest.raises(NoRunError, match=r"links\.parquet cannot be read"):
        link_use_rows(run)

"""The table of links as asked for and as measured, from the run directory alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from testbed import number_text as q
from testbed.cli import app
from testbed.results.reading.curves import curves_of
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.probed_links_table import HEADINGS, in_a_sentence, link_rows
from tests.results.conftest import WriteRun

MBIT = 1_000_000


def direction(number: int, rate: float | None = 9_990_000.0, **changed: Any) -> dict[str, Any]:
    measured = {
        "rate": rate,
        "at_least": False,
        "delay": 0.0402,
        "loss": 0.0,
        "loss_between": [0.0, 0.01],
        "packets": 1000,
    }
    return {
        "device": f"worker-{number}",
        "direction": "uplink",
        "asked": {"rate": 10 * MBIT, "delay": 0.04, "loss": 0.01},
        "measured": measured,
        "tries": 1,
        "off": [],
        "unmeasured": None,
        "failed": None,
        "drained": True,
    } | changed


def links(*directions: dict[str, Any], unmeasured: str | None = None) -> dict[str, Any]:
    probed = len({one["device"] for one in directions if one["measured"]})
    return {
        "shaped": 20,
        "probed": probed,
        "seconds": 0.4,
        "unmeasured": unmeasured,
        "directions": directions,
    }


ABSENT = direction(2, 3e8, off=["rate", "loss"])
ABSENT["measured"]["at_least"] = True
DOWN = direction(3, failed="nothing can be sent: <down>", measured=None)
ROUGH = links(direction(0), direction(1, 10_020_000.0), ABSENT, DOWN)
FAST = direction(4, measured=None, unmeasured="too fast", asked={"rate": 5000 * MBIT})


def test_equal_links_share_a_row_and_each_wrong_link_has_its_own(write_run: WriteRun) -> None:
    run = RecordedRun.load(write_run(links=ROUGH))
    good, absent, down = link_rows(run)
    assert good == (
        "uplink of 2 links",
        "10 Mbit/s",
        "9.99 Mbit/s to 10.02 Mbit/s",
        "40 ms",
        "40.2 ms",
        "1 %",
        "0 % of 2,000",
        "as asked",
    )
    assert len(good) == len(HEADINGS)
    assert absent[0] == "uplink of worker-2" and absent[2] == "at least 300 Mbit/s"
    assert absent[-1] == "rate and loss not as asked"
    assert down[2] == q.UNKNOWN and down[-1] == "not measured: nothing can be sent: <down>"
    assert in_a_sentence(run) == {"links": "3 of 20 shaped links measured: 2 NOT as asked"}


def test_a_rate_that_this_host_cannot_send_is_a_lower_bound(write_run: WriteRun) -> None:
    starved = direction(0, 8e6)
    starved["measured"]["at_least"] = True
    (row,) = link_rows(RecordedRun.load(write_run(links=links(starved))))
    assert row[2] == "at least 8 Mbit/s"
    assert row[-1] == "as asked, as far as this host can send"


def test_a_link_that_cannot_be_measured_is_not_wrong(write_run: WriteRun) -> None:
    run = RecordedRun.load(write_run(links=links(direction(0), FAST)))
    (_, fast) = link_rows(run)
    assert fast[1] == "5 Gbit/s" and fast[-1] == "not measured: too fast"
    assert in_a_sentence(run) == {"links": "1 of 20 shaped links measured: as asked, within 10 %"}


@pytest.mark.parametrize("changed", [{}, {"links": None}])
def test_unshaped_and_older_runs_have_no_table_of_links(
    write_run: WriteRun, changed: dict[str, Any], tmp_path: Path
) -> None:
    run = RecordedRun.load(write_run(**changed))
    assert (link_rows(run), in_a_sentence(run)) == ([], {})
    assert 'id="links"' not in write_report([run], tmp_path / "report.html").read_text()


def test_show_and_the_report_have_the_table_of_links(
    write_run: WriteRun, runs_root: Path, tmp_path: Path
) -> None:
    directory = write_run(links=ROUGH)
    runner = CliRunner()
    shown = runner.invoke(app, ["show", "--runs", str(runs_root)])
    assert shown.exit_code == 0, shown.output
    for text in (*HEADINGS, "NOT as asked", "at least 300 Mbit/s", "uplink of 2 links"):
        assert text in shown.stdout
    (told,) = json.loads(runner.invoke(app, ["show", "--runs", str(runs_root), "--json"]).stdout)
    assert told["manifest"]["links"]["directions"][2]["measured"]["rate"] == 3e8
    text = write_report([RecordedRun.load(directory)], tmp_path / "report.html").read_text()
    assert '<h2 id="links">Links</h2>' in text
    assert "at least 300 Mbit/s" in text and "rate and loss not as asked" in text
    assert "&lt;down&gt;" in text and "<down>" not in text


def test_a_probe_that_is_switched_off_is_reported(
    write_run: WriteRun, runs_root: Path, tmp_path: Path
) -> None:
    why = "switched off by network.probe"
    directory = write_run(links=links(unmeasured=why))
    shown = CliRunner().invoke(app, ["show", "--runs", str(runs_root)])
    assert f"not measured: {why}" in shown.stdout
    assert why in write_report([RecordedRun.load(directory)], tmp_path / "report.html").read_text()


def test_runs_with_and_without_the_probe_are_one_curve(write_run: WriteRun) -> None:
    runs = []
    for seed, network in ((1, "{uplink: 1mbit}"), (2, "{uplink: 1mbit, probe: false}")):
        directory = write_run(execution=f"quickstart/20261121-074500-{seed}", seed=seed)
        with (directory / "spec.yaml").open("a") as file:
            file.write(f"network: {network}\n")
        runs.append(RecordedRun.load(directory))
    assert len(curves_of(runs)) == 1


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (9_998_203, "9.998 Mbit/s"),
        (10_000_000, "10 Mbit/s"),
        (999_960, "1 Mbit/s"),
        (50_000, "50 kbit/s"),
        (800, "800 bit/s"),
        (1.2e10, "12 Gbit/s"),
        (0, "0 bit/s"),
        (None, q.UNKNOWN),
    ],
)
def test_rates_are_written_with_the_largest_fitting_unit(rate: float | None, text: str) -> None:
    assert q.as_rate(rate) == text

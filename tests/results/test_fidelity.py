"""The verdict on a run's host, from its summary to ``show`` and the report."""

import json
from dataclasses import asdict
from pathlib import Path

from typer.testing import CliRunner

from testbed.cli import app
from testbed.fidelity.section import BusyLinks, HostSeconds, RoundTrips, WakingUp, judged
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.comparison import compare
from testbed.results.tables.fidelity_table import VIRTUAL, fidelity_in_words, fidelity_rows
from tests.results.conftest import WriteRun

FOUND = judged(
    HostSeconds(60, 0.01, 0.02, 0.4, pressure={"cpu": 0.25}),
    WakingUp(1000, 0.001, 0.004, 0.9, 0.05),
    BusyLinks(0.9, 0.3, 0, 1000, 1.0, 1.4, 0.99),
    RoundTrips(20, 0.04, 0.0401, 0.002),
    ("a \x1b[31mred remark",),
)


def shown(write_run: WriteRun) -> RecordedRun:
    settings = {"net.ipv4.tcp_slow_start_after_idle": "0"}
    directory = write_run(clock="wall", sysctls=settings)
    summary = json.loads((directory / "summary.json").read_text())
    (directory / "summary.json").write_text(json.dumps(summary | {"fidelity": asdict(FOUND)}))
    return RecordedRun.load(directory)


def test_the_line_has_the_verdict_and_the_table_the_numbers(write_run: WriteRun) -> None:
    run = shown(write_run)
    assert fidelity_in_words(run).startswith("did not keep up, because the processors were idle")
    assert "\x1b" not in fidelity_in_words(run)
    rows = {name: (measured, asked) for name, measured, asked, _ in fidelity_rows(run)}
    assert rows["processors idle, first percentile"] == ("2 %", "at least 35 %")
    assert rows["pressure: cpu"] == ("25 %", "")
    assert rows["late wake-ups, 99 in 100 at most"] == ("4 ms", "10 % of 50 ms")
    assert rows["rate of busy uplinks ÷ asked"] == ("99 %", "within 2 %")
    assert rows["shortest round trip"] == ("40.1 ms", "at least 40 ms")
    assert rows["net.ipv4.tcp_slow_start_after_idle"] == ("0", "")


def test_show_and_the_report_have_both(write_run: WriteRun, tmp_path: Path) -> None:
    run = shown(write_run)
    printed = CliRunner().invoke(app, ["show", str(run.directory)])
    assert "  fidelity    did not keep up, because" in printed.output
    # Not only among the facts: the table is what is read, and copied.
    assert any(
        one.startswith("asgd: the host did not keep up, because the processors were idle")
        for one in compare([run]).remarks
    )
    assert "late wake-ups" in printed.output
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Did the host keep up?" in page
    assert "pressure: cpu" in page


def test_an_older_run_says_nothing_and_a_virtual_one_why_it_needs_nothing(
    write_run: WriteRun,
) -> None:
    older = RecordedRun.load(write_run("older", clock="wall"))
    assert (fidelity_in_words(older), fidelity_rows(older)) == ("", [])
    virtual = RecordedRun.load(write_run("virtual", clock="virtual"))
    assert fidelity_in_words(virtual) == VIRTUAL

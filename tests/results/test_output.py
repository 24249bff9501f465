"""Tables, figures, the report and the command line, on complete run directories."""

import csv
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from testbed.errors import TestbedError
from testbed.results.figures import quality_chart
from testbed.results.figures.chart_files import write_figure, write_figures
from testbed.results.reading.curves import curves_of
from testbed.results.reading.finding import resolve
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.comparison import compare
from testbed.results.tables.reaching import reaching
from testbed.results.tables.table import plain_text
from tests.end_to_end.conftest import CommandLine
from tests.results.conftest import (
    GREETINGS,
    WriteRun,
    accounting_table,
    evaluations_table,
    traffic,
)


def test_the_comparison_has_bytes_ratios_and_staleness(three: Path, runs_root: Path) -> None:
    comparison = compare(resolve("quickstart", runs_root), goal=95)
    asgd, comp, ada = comparison.rows
    assert comparison.baseline == "asgd"
    assert asgd.payload_bytes == 200 * 1_000_000
    assert asgd.message_bytes == GREETINGS + 200 * 1_000_016
    assert asgd.wire_ratio == 1
    assert ada.wire_ratio == pytest.approx(ada.wire_bytes / asgd.wire_bytes)
    # 10 + 88 (1 − e^(−i/40)) reaches 95 first at the evaluation of iteration 140.
    assert asgd.wire_bytes_to_goal == (GREETINGS + 140 * 1_000_016) * 105 // 100
    assert comp.wire_bytes_to_goal is None
    assert asgd.staleness_mean == pytest.approx(
        float(RecordedRun.load(three / "asgd").staleness.mean())
    )


def test_plain_text_cuts_nothing_and_lines_up(three: Path, runs_root: Path) -> None:
    comparison = compare(resolve("quickstart", runs_root))
    lines = plain_text(comparison).splitlines()
    assert len(lines) == 4
    for row, line in zip(comparison.cells, lines[1:], strict=True):
        assert all(cell in line for cell in row)
    assert len({line.index("completed") for line in lines[1:]}) == 1


def test_figures_have_the_same_bytes_every_time(
    three: Path, runs_root: Path, tmp_path: Path
) -> None:
    runs = resolve("quickstart", runs_root)
    first = write_figures(runs, tmp_path / "a")
    second = write_figures(runs, tmp_path / "b")
    names = [f"accuracy-versus-{x}" for x in ("ingress", "iteration", "time")]
    names += ["ingress-over-time", "ingress-by-worker", "staleness"]
    assert sorted(p.name for p in first) == sorted(
        f"{n}.{s}" for n in names for s in ("png", "svg")
    )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_size > 2000


def test_runs_without_evaluations_can_be_drawn(write_run: WriteRun, tmp_path: Path) -> None:
    from tests.results.conftest import evaluations_table

    run = RecordedRun.load(write_run("asgd", evaluations=evaluations_table(0, 1)[:0]))
    write_figures([run], tmp_path / "figures")
    with pytest.raises(TestbedError, match="end in"):
        write_figure([run], tmp_path / "figure.jpeg")


def test_a_goal_that_took_no_bytes_has_no_star_on_a_logarithmic_axis(write_run: WriteRun) -> None:
    """The star of a program without ingress was at 0, and that of initial parameters decades below."""
    told = evaluations_table(200, 1_000_000)
    none = told.set_column(6, told.schema.field(6), pa.array([0] * len(told)))
    programs = {"job": ["server"]}
    runs = [
        RecordedRun.load(write_run("asgd")),
        RecordedRun.load(write_run("job", evaluations=none, programs=programs)),
    ]
    curves = curves_of(runs)
    for goal, stars in ((5.0, []), (90.0, ["asgd"])):
        reached = reaching(curves, goal)
        assert all(row.reached for row in reached.rows)
        drawn = quality_chart.chart(curves, "wire", linear=False, reached=reached)
        series = drawn.plots[0].panels[0].series
        assert [one.name for one in series if one.kind == "star"] == stars
        linear = quality_chart.chart(curves, "wire", linear=True, reached=reached)
        assert sum(one.kind == "star" for one in linear.plots[0].panels[0].series) == 2


def test_the_report_is_one_file_that_loads_nothing_else(
    three: Path, runs_root: Path, tmp_path: Path
) -> None:
    path = write_report(resolve("quickstart", runs_root), tmp_path / "report.html")
    text = path.read_text()
    assert "Content-Security-Policy" in text
    assert "default-src 'none'" in text
    # Outside the two scripts the page loads nothing.
    page = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page)
    for label in ("asgd", "comp-asgd-0.01", "adacomp-0.01"):
        assert label in page


def test_the_report_escapes_text_from_files(write_run: WriteRun, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    directory = write_run("asgd", ended="failed", reason=evil)
    (directory / "spec.yaml").write_text(f"name: {evil}\n")
    text = write_report([RecordedRun.load(directory)], tmp_path / "report.html").read_text()
    assert evil not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "failed" in text


def test_the_report_of_a_long_run_stays_small(write_run: WriteRun, tmp_path: Path) -> None:
    accounting = accounting_table(600, 1_000_000, workers=200)
    run = RecordedRun.load(write_run("asgd", accounting=accounting, traffic=traffic()))
    assert write_report([run], tmp_path / "report.html").stat().st_size < 6_000_000


def test_the_command_line_writes_plain_text_into_a_file(three: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    listed = command.do("ls", "--json")
    (execution,) = json.loads(listed.stdout)
    assert len(execution["runs"]) == 3
    rows = command.do("ls").stdout.splitlines()[1:]
    for row, run in zip(rows, execution["runs"], strict=True):
        assert row.startswith(run["run"])
        assert f"  {run['manifest']['engine']}, {run['manifest']['clock']} clock  " in row
        assert row.endswith((run["parameters_sha256"] or "—")[:16])
    shown = command.do("show")
    assert "adacomp-0.01" in shown.stdout
    assert "\x1b" not in shown.stdout
    options = ("--json", "--accuracy", "90", "--csv", "runs.csv")
    compared = command.do("compare", "quickstart", *options)
    content = json.loads(compared.stdout)
    with (tmp_path / "runs.csv").open(newline="") as file:
        assert [(line["name"], int(line["wire_bytes"])) for line in csv.DictReader(file)] == [
            (one["name"], one["wire_bytes"]) for one in content["runs"]
        ]
    assert [r["name"] for r in content["runs"]] == ["asgd", "comp-asgd-0.01", "adacomp-0.01"]
    assert (tmp_path / content["figure"]).exists()
    reported = command.do("report", "quickstart")
    assert str(three.resolve() / "report.html") in reported.stdout
    unknown = command.do("show", "nothing-like-it")
    assert unknown.returncode == 2
    assert unknown.stderr.count("\n") == 1

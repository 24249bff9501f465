"""Faults of runs: paired, counted, described in words and tables, and drawn where they happened."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.cli.shown_runs import print_run
from testbed.results.figures import quality_chart as quality_figure
from testbed.results.figures.chart import Chart
from testbed.results.figures.chart_files import write_figures
from testbed.results.figures.fault_strip import KIND_COLOURS, living, marks
from testbed.results.figures.paper import figure
from testbed.results.reading.curves import curves_of
from testbed.results.reading.recorded_faults import alive, crashed, struck, went_down
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.comparison import compare
from testbed.results.tables.fault_table import in_a_line, in_words, never_struck, rows
from testbed.results.tables.reaching import reaching
from testbed.results.tables.verdict import no_update
from tests.results.conftest import WORKERS, WriteRun, evaluations_table, fault

FEW = [
    fault("freeze", "worker-3", iteration=40),
    fault("stop-network", "worker-7", iteration=60, rule=1, duration=0.5),
    fault("stop-network", "worker-7", iteration=110, rule=1, duration=0.5, end=True),
    fault("kill", "server", iteration=120, rule=2, duration=0.0),
    fault("kill", "server", iteration=120, rule=2, duration=0.0, end=True),
]
RULES = (
    "[{who: each, when: {probability: 0.0400%}, how: freeze, lasting: null},"
    " {who: {devices: [worker-7]}, when: {time: 600ms}, how: stop-network, lasting: 500ms},"
    " {who: server, when: {iteration: 120}, how: kill, lasting: null}]"
)


def crashes(count: int, first: int = 20, apart: int = 10) -> list[dict[str, Any]]:
    return [fault("freeze", f"worker-{i}", iteration=first + i * apart) for i in range(count)]


def test_a_fault_ends_with_its_own_rule_at_its_own_device(write_run: WriteRun) -> None:
    written = [
        fault("freeze", "worker-1", "worker-2", iteration=10),
        fault("freeze", "worker-1", iteration=12, rule=1),
        fault("freeze", "worker-1", iteration=20, end=True),
        fault("freeze", "worker-1", iteration=30, rule=1, end=True),
        fault("slow", "worker-2", iteration=40, rule=2, end=True),  # which never began
    ]
    occurrences = RecordedRun.load(write_run(faults=written)).faults
    found = [
        (s.device, s.rule, s.began.iteration, s.ended and s.ended.iteration) for s in occurrences
    ]
    assert found == [
        ("worker-1", 0, 10, 20),
        ("worker-2", 0, 10, None),
        ("worker-1", 1, 12, 30),
    ]
    assert (occurrences[0].began.time, occurrences[0].began.host_time) == (0.1, 0.01)


def test_a_line_that_is_cut_off_is_ignored(write_run: WriteRun) -> None:
    directory = write_run(faults=FEW)
    path = directory / "faults.jsonl"
    whole = path.read_bytes()
    kept = len(whole) - len(whole.splitlines()[-1]) - 1
    for length in (*range(kept, len(whole) - 1, 7), kept):
        path.write_bytes(whole[:length])
        occurrences = RecordedRun.load(directory).faults
        assert [s.ended is None for s in occurrences] == [True, False, True]
    path.unlink()
    assert RecordedRun.load(directory).faults == ()


def test_a_worker_that_is_neither_frozen_nor_killed_is_alive(write_run: WriteRun) -> None:
    written = [
        fault("freeze", "worker-0", "worker-1", iteration=10),
        fault("stop-network", "worker-5", iteration=20, rule=1),
        fault("kill", "worker-0", iteration=30, rule=2),  # which also ends the freeze
        fault("kill", "worker-0", iteration=50, rule=2, end=True),
        fault("kill", "server", iteration=60, rule=3),
        fault("freeze", "worker-1", iteration=70, end=True),
    ]
    occurrences = RecordedRun.load(write_run(faults=written)).faults
    iterations, _, counts = alive(occurrences, WORKERS)
    steps = dict(zip(iterations.tolist(), counts.tolist(), strict=True))
    assert steps == {0: 20, 10: 18, 30: 18, 50: 19, 70: 20}
    assert went_down(occurrences) == 2
    assert crashed(occurrences) == 0  # both came back
    assert struck(occurrences) == {"freeze": 2, "kill": 2, "stop-network": 1}


def test_those_that_are_down_together_between_two_updates_are_counted(write_run: WriteRun) -> None:
    """While all are frozen there is no update, so that they thaw at the iteration of their freeze."""
    everyone = [f"worker-{i}" for i in range(WORKERS)]
    written = [
        fault("freeze", *everyone, iteration=10) | {"time": 1.0},
        fault("freeze", *everyone, iteration=10, end=True) | {"time": 2.0},
        # What a restored server has lost comes again: the next freeze ends at an earlier iteration.
        fault("freeze", "worker-1", iteration=60, rule=1) | {"time": 3.0},
        fault("freeze", "worker-1", iteration=40, rule=1, end=True) | {"time": 4.0},
    ]
    run = RecordedRun.load(write_run(faults=written))
    iterations, times, counts = alive(run.faults, WORKERS)
    assert iterations.tolist() == [0, 10, 10, 60, 60]
    assert times.tolist() == [0, 1, 2, 3, 4]
    assert counts.tolist() == [WORKERS, 0, WORKERS, WORKERS - 1, WORKERS]
    # Against time they are drawn when it was so, as the faults below are.
    found = living(curves_of([run])[0], "time")
    assert found is not None and found.at[:5].tolist() == [0, 1, 2, 3, 4]
    assert found.workers[:5].tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            {"who": "each", "when": {"probability": "0.0400%"}, "how": "freeze", "lasting": None},
            "each worker, with probability 0.04 % after each push: freeze for good",
        ),
        (
            {"who": {"share": "10%"}, "when": {"mean_time": "60s"}, "lasting": "10s"}
            | {"how": {"kind": "slow", "factor": 5.0, "uplink": "1Mbit"}},
            "10% of the workers, every 60s on average: slow (factor 5, uplink 1Mbit) for 10s",
        ),
        (
            {"who": {"devices": ["worker-3", "worker-7"]}, "when": {"time": "20s"}}
            | {"how": "partition", "lasting": "5s"},
            "worker-3, worker-7, at 20s: partition for 5s",
        ),
        (
            {"who": "server", "when": {"iteration": 5000}, "how": "kill", "lasting": None},
            "the server, at iteration 5,000: kill, and restart at once",
        ),
        (
            {"who": {"class": "slow"}, "when": {"trace": "dead.csv"}, "how": "kill"},
            "class slow, as dead.csv says",
        ),
        ({"who": {"number": 1}, "when": {"time": "1s"}, "how": "kill"}, "1 worker, at 1s"),
        ("a rule of some later version", "a rule of some later version"),
    ],
)
def test_a_rule_is_described_in_words(rule: object, words: str) -> None:
    assert in_words(rule).startswith(words)


def test_the_table_has_a_row_for_each_rule_that_struck(write_run: WriteRun) -> None:
    run = RecordedRun.load(write_run(faults=FEW, rules=RULES))
    assert rows(["asgd"], [run]) == (
        (
            "asgd",
            "each worker, with probability 0.04 % after each push: freeze for good",
            *("freeze", "1", "1", "40 (0.4 s)", "40 (0.4 s)"),
        ),
        (
            "asgd",
            "worker-7, at 600ms: stop-network for 500ms",
            *("stop-network", "1", "1", "60 (0.6 s)", "60 (0.6 s)"),
        ),
        (
            "asgd",
            "the server, at iteration 120: kill, and restart at once",
            *("kill", "1", "1", "120 (1.2 s)", "120 (1.2 s)"),
        ),
    )
    assert in_a_line(run) == "freeze of 1 worker, kill of the server, stop-network of 1 worker"


def test_rules_of_device_classes_come_after_those_of_the_list(write_run: WriteRun) -> None:
    directory = write_run(faults=[fault("kill", "worker-2", iteration=9, rule=1)], rules=(
        "[{who: each, when: {time: 1s}, how: freeze}]\n"
        "devices: {classes: [{name: old, faults: [{when: {time: 2s}, how: kill}]}]}"
    ))  # fmt: skip
    [[_, words, *_]] = rows(["asgd"], [RecordedRun.load(directory)])
    assert words == "class old, at 2s: kill for good"


def test_a_rule_with_a_trace_names_only_the_trace() -> None:
    rule = {"who": "each", "when": {"trace": "/far/away/outages.csv"}, "how": "freeze"}
    assert in_words(rule) == "as outages.csv says"


def test_payload_of_pushes_that_are_no_update_is_reported(write_run: WriteRun) -> None:
    directory = write_run()
    path = directory / "summary.json"
    summary = json.loads(path.read_bytes())
    journalled = int(RecordedRun.load(directory).pushes["payload_bytes"].to_numpy().sum())
    summary["ingress"]["payload_bytes"] = journalled
    path.write_text(json.dumps(summary))
    assert no_update(RecordedRun.load(directory)) == {}
    summary["ingress"]["payload_bytes"] += 2_000_000
    path.write_text(json.dumps(summary))
    assert no_update(RecordedRun.load(directory))["no update"].startswith(
        "2.00 MB of the payload, "
    )


def test_compare_has_a_column_of_crashes_only_if_there_are_any(write_run: WriteRun) -> None:
    without = write_run("asgd", faults=FEW[1:3])
    crashing = write_run("adacomp-0.01", faults=crashes(7))
    assert "crashed" not in compare([RecordedRun.load(without)]).headings
    both = compare([RecordedRun.load(without), RecordedRun.load(crashing)])
    place = both.headings.index("crashed")
    assert [cells[place] for cells in both.cells] == ["0", "7"]
    assert both.headings[-1] == "wire to 97 %"


def test_a_mark_is_under_its_point_of_the_curve(write_run: WriteRun) -> None:
    [curve] = curves_of([RecordedRun.load(write_run(faults=FEW))])
    freeze, stop, kill = marks(curve)
    mean = curve.mean
    assert freeze.at["iteration"] == 40
    assert freeze.at["wire"] == mean.wire_bytes[list(mean.iteration).index(40)]
    assert freeze.until is None
    assert stop.until is not None
    assert (stop.at["time"], stop.until["time"]) == (0.6, 1.1)
    assert stop.at["payload"] < stop.until["payload"] < kill.at["payload"]
    assert [mark.server for mark in (freeze, stop, kill)] == [False, False, True]
    assert stop.text == "stop-network of worker-7 at iteration 60, 0.6 s, for 0.5 s"


def test_several_seeds_share_a_curve_and_its_marks(write_run: WriteRun) -> None:
    one = write_run("asgd", faults=crashes(8))
    other = write_run("asgd", "quickstart/20261121-074902-2", seed=2, faults=crashes(4))
    [curve] = curves_of([RecordedRun.load(one), RecordedRun.load(other)])
    assert len(marks(curve)) == 12
    assert sum("(seed 2)" in mark.text for mark in marks(curve)) == 4
    found = living(curve, "iteration")
    assert found is not None
    assert found.workers[0] == WORKERS
    assert found.workers[-1] == WORKERS - 6


def test_there_are_no_more_marks_than_a_figure_can_show(write_run: WriteRun) -> None:
    many = [
        fault("freeze", f"worker-{i % WORKERS}", iteration=i % 2000, end=i % 2 == 1)
        for i in range(20_000)
    ]
    long = write_run(count=2000, faults=many, evaluations=evaluations_table(2000, 1000))
    [curve] = curves_of([RecordedRun.load(long)])
    found = marks(curve)
    assert 100 < len(found) <= 400
    assert found[100].text == "freeze of worker-0, worker-2, worker-4 at iteration 500 to 504"


@pytest.mark.parametrize("against", [one for one in quality_figure.AXES if one != "joules"])
def test_the_figure_of_accuracy_has_a_strip_and_keeps_its_range(
    write_run: WriteRun, against: quality_figure.Against
) -> None:
    plain = write_run("asgd")
    few = write_run("comp-asgd-0.01", payload=17_000, faults=FEW)
    many = write_run("adacomp-0.01", payload=17_000, faults=crashes(15))

    def chart(*directories: Path) -> Chart:
        curves = curves_of([RecordedRun.load(one) for one in directories])
        return quality_figure.chart(curves, against, False, reaching(curves, 97))

    charts = chart(plain), chart(plain, few), chart(plain, few, many)
    assert [len(one.plots[0].panels) for one in charts] == [1, 2, 3]
    without, with_few, with_both = map(figure, charts)
    assert [len(one.axes) for one in (without, with_few, with_both)] == [1, 2, 3]
    assert without.get_figheight() < with_few.get_figheight() < with_both.get_figheight()
    # A row with its line for each run with faults, a tick for each fault, a bar if it lasted.
    _, alive_panel, strip = charts[-1].plots[0].panels
    assert len(strip.lines) == 2

    def points(kind: str) -> int:
        return sum(int(np.isfinite(one.x).sum()) for one in strip.series if one.kind == kind)

    # One lasts, and the server is back at once: two bars, with two ends each.
    assert (points("ticks"), points("spans")) == (3 + 15, 2 * 2)
    assert [one.y[-1] for one in alive_panel.series] == [WORKERS - 1, 5]
    # The server's restart is a labelled line across the plot.
    assert "server killed" in {text.get_text() for text in with_few.axes[0].texts}
    # No fault widens the plot.
    write_run("no-faults", payload=17_000)
    same = figure(chart(plain, few.parent / "no-faults")).axes[0].get_xlim()
    assert with_few.axes[0].get_xlim() == pytest.approx(same)


def test_faults_to_the_left_of_a_logarithmic_axis_have_no_strip(write_run: WriteRun) -> None:
    # Nothing had arrived by then: an axis without marks would have no place in the browser's plot.
    early = RecordedRun.load(write_run("asgd", faults=[fault("freeze", "worker-3", iteration=0)]))
    curves = curves_of([early])
    panels = {
        linear: quality_figure.chart(curves, "wire", linear).plots[0].panels
        for linear in (False, True)
    }
    assert {linear: len(found) for linear, found in panels.items()} == {False: 1, True: 2}


def test_figures_and_report_show_the_faults_of_runs(write_run: WriteRun, tmp_path: Path) -> None:
    runs = [
        RecordedRun.load(write_run("asgd", faults=FEW, rules=RULES)),
        RecordedRun.load(write_run("adacomp-0.01", faults=crashes(15))),
        RecordedRun.load(
            write_run("no-point", faults=FEW, evaluations=evaluations_table(0, 1)[:0])
        ),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns if something does not fit
        first, again = (write_figures(runs, tmp_path / name) for name in "ab")
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
    text = write_report(runs, tmp_path / "report.html").read_text()
    assert text.count("with probability 0.04 % after each push: freeze for good") == 1
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    _, alive_panel, strip = data["charts"]["iteration"]["plots"][0]["panels"]
    ticks = [one for one in strip["series"] if one["kind"] == "ticks"]
    assert [one["name"] for one in ticks] == ["freeze", "kill", "stop-network"]
    assert all(KIND_COLOURS[one["name"]] == one["look"] for one in ticks)
    rows = [row for one in ticks for row in data["arrays"][one["y"]]]
    assert [rows.count(row) for row in (0, 1, 2)] == [3, 15, 3]
    last = [data["arrays"][one["y"]][-1] for one in alive_panel["series"]]
    assert last == [WORKERS - 1, 5]


def test_the_report_escapes_the_names_of_devices(write_run: WriteRun, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    run = RecordedRun.load(write_run(faults=[fault("freeze", evil, iteration=1)]))
    text = write_report([run], tmp_path / "report.html").read_text()
    assert evil not in text
    assert "<img" not in text.split('id="data">')[1].split("</script>")[0]


def test_faults_that_never_struck_are_named(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = (
        "[{who: {share: 20%}, when: {time: 20s}, how: kill}, {when: {iteration: 9}, how: freeze}]"
    )
    directory = write_run(rules=rules)
    assert never_struck(RecordedRun.load(directory)) == ""
    path = directory / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"never_struck": [0]}))
    told = "20% of the workers, at 20s: kill for good"
    assert never_struck(RecordedRun.load(directory)) == (
        f"this fault never struck, training ended at 2.0 s, update 200: {told}"
    )
    assert compare([RecordedRun.load(directory)]).remarks == (
        f"asgd: this fault never struck, training ended at 2.0 s, update 200: {told}",
    )
    print_run(RecordedRun.load(directory), "asgd")  # whose longest name of a fact this is
    assert "\n  never struck this fault never struck, " in capsys.readouterr().out

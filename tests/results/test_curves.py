"""Curves over several seeds, what they take to reach an accuracy, and their traffic."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from testbed.results.figures import ingress_charts
from testbed.results.reading.curves import curves_of
from testbed.results.reading.ingress import ingress_of
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.quality import LOSS
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import SERVER_KILLED
from testbed.results.tables.comparison import compare
from testbed.results.tables.reaching import NEVER, goal_of, reaching, steps_of
from testbed.results.tables.verdict import verdict
from tests.results.conftest import (
    EVERY,
    GREETINGS,
    WORKERS,
    WriteRun,
    accounting_table,
    evaluations_table,
    traffic,
)

Seeds = Callable[..., list[RecordedRun]]


@pytest.fixture
def seeds(write_run: WriteRun) -> Seeds:
    """A function that makes runs of one experiment with seeds 1, 2, … and the given speeds."""

    def make(*speeds: float) -> list[RecordedRun]:
        return [
            RecordedRun.load(
                write_run(
                    "adacomp", f"quickstart/20261121-07450{seed}-{seed}", speed=speed, seed=seed
                )
            )
            for seed, speed in enumerate(speeds, 1)
        ]

    return make


def test_runs_that_differ_only_in_their_seed_are_one_curve(seeds: Seeds) -> None:
    runs = seeds(30, 40, 50)
    (curve,) = curves_of(runs)
    assert curve.title == "adacomp (3 seeds)"
    accuracies = np.stack([run.evaluations.accuracy for run in runs])
    mean = curve.mean
    assert mean.value == pytest.approx(accuracies.mean(axis=0))
    assert mean.low == pytest.approx(accuracies.min(axis=0))
    assert mean.high == pytest.approx(accuracies.max(axis=0))
    assert (mean.low < mean.high)[1:].all()
    assert mean.wire_bytes == pytest.approx(runs[0].evaluations.wire_bytes)


def test_another_spec_or_an_unfinished_run_is_another_curve(
    seeds: Seeds, write_run: WriteRun
) -> None:
    runs = seeds(30, 40)
    stopped = RecordedRun.load(
        write_run("adacomp", "quickstart/20261121-074509-3", ended="interrupted", seed=3)
    )
    other = write_run("adacomp", "quickstart/20261121-074508-4", seed=4)
    (other / "spec.yaml").write_text("name: quickstart\nseed: 4\nalgorithms: [other]\n")
    curves = curves_of([*runs, stopped, RecordedRun.load(other)])
    assert [len(curve.runs) for curve in curves] == [2, 1, 1]


def test_bytes_to_an_accuracy_are_those_of_the_first_evaluation_there(
    write_run: WriteRun, seeds: Seeds
) -> None:
    asgd = RecordedRun.load(write_run("asgd", payload=1_000_000))
    # 10 + 88 (1 − e^(−i/speed)) percent after i updates, evaluated every 10.
    expected = {
        speed: next(i for i in range(0, 201, EVERY) if 10 + 88 * (1 - np.exp(-i / speed)) >= 90)
        for speed in (40, 30, 50)
    }
    table = reaching(curves_of([asgd, *seeds(30, 50)]), 90)
    base, both = table.rows
    assert table.baseline == "asgd"
    assert base.iteration == expected[40]
    assert base.wire_bytes == (GREETINGS + expected[40] * 1_000_016) * 105 // 100
    assert (both.reached, len(both.runs)) == (2, 2)
    assert both.iteration == (expected[30] + expected[50]) / 2
    assert both.wire_bytes is not None
    assert both.wire_ratio == pytest.approx(both.wire_bytes / base.wire_bytes)


def test_a_curve_counts_the_runs_that_reach_the_accuracy(seeds: Seeds, write_run: WriteRun) -> None:
    asgd = RecordedRun.load(write_run("asgd", payload=1_000_000))
    table = reaching(curves_of([asgd, *seeds(30, 2000)]), 97)
    base, row = table.rows
    assert (base.reached, row.reached) == (1, 1)
    # A ratio of the luckier seeds is marked.
    whole, marked = (cells[-2] for cells in table.cells)
    assert whole == "1"
    assert marked.endswith(" (1 of 2)")
    assert table.headings[-2] == "wire ÷ asgd"


def test_a_run_that_never_reaches_the_accuracy_has_its_best(seeds: Seeds) -> None:
    (never,) = reaching(curves_of(seeds(40)), 99.9).rows
    assert never.reached == 0 and never.wire_bytes is None
    assert never.best == pytest.approx(10 + 88 * (1 - np.exp(-200 / 40)), abs=0.01)


@pytest.mark.parametrize(("speeds", "goal"), [((30, 40), 97.0), ((30, 100), 86.0), ((), 97.0)])
def test_by_default_the_goal_is_what_every_run_reaches_and_at_most_97(
    seeds: Seeds, write_run: WriteRun, speeds: tuple[float, ...], goal: float
) -> None:
    diverged = write_run("asgd", ended="diverged", speed=10_000)
    curves = curves_of([*seeds(*speeds), RecordedRun.load(diverged)])
    assert goal_of(curves) == goal
    reached = {row.name: row.reached for row in reaching(curves).rows}
    assert reached == {"asgd": 0, **({"adacomp": 2} if speeds else {})}


def test_an_unknown_baseline_is_refused_with_the_nearest_name(seeds: Seeds) -> None:
    with pytest.raises(NoRunError, match="did you mean adacomp"):
        reaching(curves_of(seeds(40)), 97, baseline="adacom")


def test_ingress_comes_from_the_capture_if_there_is_one(write_run: WriteRun) -> None:
    table = accounting_table(20, 1_000_000)
    run = RecordedRun.load(write_run("asgd", accounting=table, traffic=traffic()))
    ingress = ingress_of(curves_of([run])[0])
    assert "ack_bytes" in ingress.rates and "message_bytes" not in ingress.rates
    mine = np.char.startswith(table["device"].fill_null("").to_numpy().astype(str), "worker")
    inward = table["direction"].to_numpy() == "ingress"
    assert ingress.worker_bytes.sum() == table["wire_bytes"].to_numpy()[mine & inward].sum()
    assert ingress.remarks == ()


def test_packets_that_the_capture_dropped_are_reported(write_run: WriteRun) -> None:
    run = RecordedRun.load(
        write_run("asgd", accounting=accounting_table(20, 1_000_000), traffic=traffic(dropped=12))
    )
    assert "lost 12 of 1,012 packets" in ingress_of(curves_of([run])[0]).remarks[0]
    assert "dropped 12" in verdict(run).text


def test_without_a_capture_ingress_counts_messages_and_says_so(write_run: WriteRun) -> None:
    run = RecordedRun.load(write_run("asgd"))
    ingress = ingress_of(curves_of([run])[0])
    assert list(ingress.rates) == ["message_bytes"]
    assert "not captured" in ingress.remarks[0]
    total = sum(ingress.rates["message_bytes"]) * ingress.width
    assert total == pytest.approx(run.pushes["message_bytes"].to_numpy().sum())


def test_messages_that_came_without_an_update_are_told(write_run: WriteRun) -> None:
    directory = write_run("ring")
    summary = json.loads((directory / "summary.json").read_text())
    summary["ingress"]["message_bytes"] *= 4  # most of what peers pass on in a ring
    (directory / "summary.json").write_text(json.dumps(summary))
    [remark] = ingress_of(*curves_of([RecordedRun.load(directory)])).remarks
    assert remark.endswith("without headers; 75 % of all bytes came in other messages")


def test_the_bars_of_staleness_add_up_to_100_percent(three: Path) -> None:
    runs = [RecordedRun.load(path) for path in sorted(three.iterdir()) if path.is_dir()]
    (plot,) = ingress_charts.staleness(curves_of(runs)).plots
    for bars in plot.panels[0].series:
        assert bars.y.sum() == pytest.approx(100)


def test_the_verdict_says_whether_the_ledgers_agree(write_run: WriteRun) -> None:
    difference = {"ledgers": "a", "expected": 1, "found": 2, "reason": "b"}
    untold = {"ledgers": "a", "expected": 0, "found": 7_000, "reason": SERVER_KILLED}
    states = {
        "old": None,
        "off": traffic(capture=None, reconciled=None),
        "cut": traffic(reconciled=None),
        "good": traffic(),
        "bad": traffic(reconciled=False, differences=[difference]),
        "untold": traffic(reconciled=False, differences=[untold, untold]),
        "worse": traffic(reconciled=False, differences=[untold, difference]),
    }
    found = {
        name: verdict(RecordedRun.load(write_run(name, traffic=t))) for name, t in states.items()
    }
    assert [v.state for v in found.values()] == [
        *("unknown", "unknown", "unknown", "good", "bad", "unknown", "bad")
    ]
    assert "capture was off" in found["off"].text
    assert "1 difference" in found["bad"].text
    assert (
        "but for 2 streams (14.0 kB) of a server or an aggregator that was killed"
        in found["untold"].text
    )
    assert "2 difference" in found["worse"].text
    runs = [RecordedRun.load(write_run(f"again-{name}", traffic=t)) for name, t in states.items()]
    warnings = compare(runs).remarks
    assert [one.split(" rec")[0] for one in warnings] == ["again-bad: NOT", "again-worse: NOT"]


def test_a_run_without_evaluations_has_no_best_accuracy(write_run: WriteRun) -> None:
    run = RecordedRun.load(write_run("asgd", evaluations=evaluations_table(0, 1)[:0]))
    (row,) = reaching(curves_of([run]), 97).rows
    assert row.best is None and row.reached == 0


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_step_is_where_every_easier_goal_is_reached(
    write_run: WriteRun, better: Literal["higher", "lower"]
) -> None:
    """The report's page has only the steps, and its reader asks for any goal."""
    runs = [
        RecordedRun.load(
            write_run("asgd", f"quickstart/20261121-07450{seed}-{seed}", seed=seed, speed=speed)
        )
        for seed, speed in ((1, 40), (2, 55))
    ]
    [curve] = curves_of(runs)
    if better == "lower":
        curve = replace(curve, quality=LOSS)
    steps = steps_of(curve)
    seen = set()
    for goal in np.linspace(0, 2.5, 60) if better == "lower" else np.linspace(5, 99, 60):
        good = [one for one in steps if (one >= goal if better == "higher" else one <= goal)]
        point = steps[good[0]] if good else NEVER
        [row] = reaching([curve], float(goal)).rows
        assert (point.value, point.cells(2)) == (row.value, row.cells(2)), goal
        seen.add(point.reached)
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("captured", [True, False])
def test_of_aggregators_only_what_they_push_to_the_server_is_ingress(
    write_run: WriteRun, captured: bool
) -> None:
    tables = []
    for at, workers in (("server", 4), ("aggregator-0", 10), ("aggregator-1", 10)):
        table = accounting_table(20, 1_000_000, workers)
        if at == "server":
            names = pc.replace_substring(table["device"], "worker", "aggregator")
            table = table.set_column(1, "device", names)
        tables.append(table.append_column("server", pa.array([at] * len(table))))
    of_server = tables[0].filter(pc.equal(tables[0]["direction"], "ingress"))
    found = {"accounting": pa.concat_tables(tables), "traffic": traffic()} if captured else {}
    directory = write_run("hierarchical", **found)
    rows = parquet.read_table(directory / "updates.parquet")
    aggregators = pa.array(WORKERS + np.arange(len(rows)) % 4, pa.int32())  # a is n + a
    parquet.write_table(
        rows.set_column(rows.column_names.index("worker"), "worker", aggregators),
        directory / "updates.parquet",
    )
    run = RecordedRun.load(directory)
    ingress = ingress_of(curves_of([run])[0])
    assert sorted(ingress.workers) == [f"aggregator-{i}" for i in range(4)]
    assert ingress.remarks[-1].startswith("its workers push to aggregators")
    if captured:
        known = pc.starts_with(of_server["device"], "aggregator")
        expected = of_server.filter(known)["wire_bytes"].to_numpy().sum()
    else:
        expected = run.pushes["message_bytes"].to_numpy().sum()
    assert ingress.worker_bytes.sum() == expected
    rates = sum(rate.sum() for rate in ingress.rates.values()) * ingress.width
    assert rates == pytest.approx(expected, rel=1e-4)

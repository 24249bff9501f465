"""Every query of every panel, asked of a real Prometheus that scraped a real run.

The results must equal the numbers of the run directory, and only those that are listed here with a
reason may be empty.
"""

import re
from collections.abc import Mapping

import pytest

from tests.dashboards.conftest import ALGORITHMS, CRASHED, UPDATES, Watched
from tests.dashboards.grafana import Query, chosen, dashboards, interpolated, queries
from tests.dashboards.server import Series

pytestmark = [pytest.mark.real, pytest.mark.exercises("Prometheus"), pytest.mark.timeout(300)]

QUERIES = list(queries())
STEP = 1.0
FEW = {"layer": "wire", "target": "0.8", "measure": chosen()}
"""The values of the variables that have just one, or all."""

LOST: Mapping[str, str] = {
    "compare: Crashes [Anno]": "marks where a device was lost",
    "devices: Crashes [Anno]": "marks where a device was lost",
    "ingress: Crashes [Anno]": "marks where a device was lost",
    "network: Crashes [Anno]": "marks where a device was lost",
    "devices: Devices lost [A]": "one of one algorithm",
    "devices: Workers out of action [B]": "the one that was lost",
    "devices: Alerts [A]": "an alert fires where a device was lost",
}
"""Queries that give nothing, or zero, for the algorithm that lost no worker, with the reason."""
ZERO: Mapping[str, str] = {
    **{
        f"{name}: Faults [Anno]": "the experiment has none: test_faults_marked.py"
        for name in ("compare", "devices", "ingress", "network")
    },
    "devices: Workers out of action [A]": "likewise",
    "devices: Workers out of action [C]": "likewise",
    "devices: Workers out of action [D]": "likewise",
    "devices: Pushes dropped [A]": "only synchronous SGD drops pushes",
    "network: Uplink drops [A]": "a queue holds what four workers push",
    "network: Packets that the capture missed [A]": "the capture keeps up",
}
EMPTY: Mapping[str, str] = {
    "devices: Devices struck [A]": "the experiment has no faults: test_faults_marked.py",
    "devices: Diagnostics [A]": "these algorithms report none: test_diagnostics.py",
    **{
        f"{name}: {panel}": "these runs are compared by accuracy: test_diagnostics.py"
        for name in ("compare", "ingress")
        for panel in (
            "Last $measure [A]",
            "$measure against ingress [Y]",
            "$measure against updates [Y]",
        )
    },
    "devices: Gradients waited for [A]": "these algorithms wait for none: test_diagnostics.py",
}
MAYBE_ZERO: Mapping[str, str] = {
    "devices: Evaluations due [A]": "an evaluator that keeps up is never seen behind",
    "network: Uplink backlog [A]": "a queue may be empty whenever it is looked at",
}


def variables(watched: Watched, algorithm: str = "") -> dict[str, str]:
    """Return what Grafana puts in: everything, or one run and algorithm."""
    one = {"run": chosen(watched.run), "algorithm": chosen(algorithm)} if algorithm else {}
    return {"run": chosen(), "algorithm": chosen()} | one | FEW


def ask(watched: Watched, query: Query, values: Mapping[str, str]) -> list[Series]:
    """Return the series that the panel would get; an instant query's have one value each."""
    return query.ask(watched.prometheus, values, watched.start, watched.end, STEP)


def query(name: str) -> Query:
    [found] = [one for one in QUERIES if one.name == name]
    return found


def last(watched: Watched, name: str, label: str = "") -> dict[tuple[str, str], float]:
    """Return the last value of each series of a panel's query, by algorithm and another label."""
    series = ask(watched, query(name), variables(watched))
    return {
        (labels.get("algorithm", ""), labels.get(label, "")): values[-1][1]
        for labels, values in series
    }


def test_the_names_above_are_names_of_queries() -> None:
    assert {*LOST, *ZERO, *EMPTY, *MAYBE_ZERO} <= {one.name for one in QUERIES}


@pytest.mark.parametrize("algorithm", ["", "asgd"], ids=["all", "asgd"])
@pytest.mark.parametrize("one", QUERIES, ids=lambda one: one.name)
def test_a_query_returns_data(watched: Watched, one: Query, algorithm: str) -> None:
    series = ask(watched, one, variables(watched, algorithm))
    numbers = [value for _, points in series for _, value in points]
    if one.name in LOST and algorithm:
        assert set(numbers) <= {0.0}, LOST[one.name]
        return
    if one.name in EMPTY:
        assert not numbers, EMPTY[one.name]
        return
    assert numbers
    if one.name in ZERO:
        assert set(numbers) == {0.0}, ZERO[one.name]
    elif one.name not in MAYBE_ZERO:
        assert max(numbers) > 0
    assert min(numbers) >= 0


def test_a_crash_is_marked_counted_and_alerted(watched: Watched) -> None:
    marks = ask(watched, query("devices: Crashes [Anno]"), variables(watched))
    marked = {
        labels["algorithm"]: [moment for moment, value in points if value > 0]
        for labels, points in marks
    }
    assert marked["asgd"] == []
    # Marked from the first scrape after it, for as long as the query looks back.
    assert -STEP <= marked[CRASHED][0] - watched.crash <= 3
    assert marked[CRASHED][-1] - marked[CRASHED][0] <= 5

    lost = last(watched, "devices: Devices lost [A]", "device_class")
    assert lost == {("asgd", "all"): 0, (CRASHED, "all"): 1}
    states = ask(
        watched,
        query("devices: Devices by state: $algorithm [A]"),
        variables(watched, CRASHED),
    )
    [dead] = [points for labels, points in states if labels["state"] == "dead"]
    assert {value for moment, value in dead if moment < watched.crash - STEP} == {0}
    assert dead[-1][1] == 1
    [(alert, _)] = ask(watched, query("devices: Alerts [A]"), variables(watched))
    assert (alert["alertname"], alert["severity"]) == ("TestbedDevicesLost", "info")
    assert (alert["algorithm"], alert["run"]) == (CRASHED, watched.run)


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_the_variables_offer_the_run_and_its_algorithms(watched: Watched, name: str) -> None:
    offered = {}
    for variable in dashboards()[name]["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
        assert found
        selector = interpolated(found[1], {"run": chosen()}, step=STEP, seconds=watched.seconds)
        offered[found[2]] = watched.prometheus.get(
            f"label/{found[2]}/values",
            {"match[]": selector, "start": watched.start, "end": watched.end},
        )
    # These runs are compared by accuracy.
    measures: dict[str, list[str]] = {"measure": []} if name in ("compare", "ingress") else {}
    assert offered == {"run": [watched.run], "algorithm": sorted(ALGORITHMS)} | measures


def test_choosing_an_algorithm_leaves_the_other_out(watched: Watched) -> None:
    one = query("compare: Ingress total [A]")
    [(labels, _)] = ask(watched, one, variables(watched, "adacomp-0.1"))
    assert labels == {"run": watched.run, "algorithm": "adacomp-0.1"}


def test_the_total_is_that_of_the_summary(watched: Watched) -> None:
    """The last scrape comes after the end of the run, so that it counts everything."""
    for layer in ("payload", "message", "wire"):
        for algorithm, summary in watched.summaries.items():
            values = variables(watched, algorithm)
            series = ask(watched, query("ingress: Ingress total: $algorithm [A]"), values)
            [points] = [points for labels, points in series if labels["layer"] == layer]
            # The panel counts all ingress, also that after the last update.
            assert points[-1][1] == summary["ingress_after_drain"][f"{layer}_bytes"]
            assert points[-1][1] == pytest.approx(summary["ingress"][f"{layer}_bytes"], rel=0.05)
            # It only grows, and starts near zero.
            amounts = [value for _, value in points]
            assert amounts == sorted(amounts)
            assert amounts[0] < 0.2 * amounts[-1]
    shown = last(watched, "ingress: Wire ingress [A]")
    for algorithm, summary in watched.summaries.items():
        assert shown[algorithm, ""] == summary["ingress_after_drain"]["wire_bytes"]


def test_the_rate_adds_up_to_the_total(watched: Watched) -> None:
    one = query("ingress: Ingress rate: $algorithm [A]")
    for algorithm, summary in watched.summaries.items():
        series = ask(watched, one, variables(watched, algorithm))
        [points] = [points for labels, points in series if labels["layer"] == "wire"]
        total = sum(value * STEP for _, value in points)
        assert total == pytest.approx(summary["ingress"]["wire_bytes"], rel=0.25)


def test_updates_and_accuracy_are_those_of_the_summary(watched: Watched) -> None:
    updates = last(watched, "compare: Runs [C]")
    accuracy = last(watched, "ingress: Accuracy [A]")
    best = last(watched, "compare: Runs [B]")
    speed = last(watched, "ingress: Updates per second [A]")
    assert speed == last(watched, "compare: Runs [D]")
    progress = last(watched, "ingress: Progress [A]")
    for algorithm, summary in watched.summaries.items():
        key = (algorithm, "")
        assert updates[key] == summary["updates"] == UPDATES
        assert progress[key] == 1
        assert accuracy[key] == pytest.approx(summary["final_accuracy"] / 100, abs=1e-6)
        # An evaluation that another follows within a second may be in no scrape.
        assert accuracy[key] <= best[key] <= summary["best_accuracy"] / 100 + 1e-6
        assert speed[key] == pytest.approx(summary["updates_per_second"], rel=0.1)


def test_bytes_to_an_accuracy_are_those_of_the_evaluations(watched: Watched) -> None:
    """The table shows bytes by layer, and the bars of the comparison show the same wire bytes."""
    wire, message, payload = (
        last(watched, f"ingress: Bytes to accuracy $target [{ref_id}]") for ref_id in "ABC"
    )
    for algorithm, summary in watched.summaries.items():
        key = (algorithm, "")
        assert 0 < payload[key] < message[key] < wire[key] <= summary["ingress"]["wire_bytes"]
    bars = last(watched, "compare: Ingress to accuracy $target [A]")
    assert bars == wire


def test_points_of_a_chart_are_pairs_of_the_same_moment(watched: Watched) -> None:
    """The test joins them on time and algorithm, as Grafana does."""
    values = variables(watched)
    across, up = (
        {
            (labels["algorithm"], moment): value
            for labels, points in ask(watched, query(f"ingress: {chart}"), values)
            for moment, value in points
        }
        for chart in ("Accuracy against ingress [X]", "Accuracy against ingress [Y]")
    )
    assert set(across) == set(up)
    for algorithm, summary in watched.summaries.items():
        curve = sorted({(across[k], up[k]) for k in across if k[0] == algorithm})
        # At most one point for each evaluation, and not just the first and the last.
        assert 4 <= len(curve) <= 14
        assert curve[-1][0] == pytest.approx(summary["ingress"]["wire_bytes"], rel=0.01)
        assert curve[-1][1] == pytest.approx(summary["final_accuracy"] / 100, abs=1e-6)


def test_the_bytes_of_the_workers_add_up_to_the_total(watched: Watched) -> None:
    talkers = last(watched, "ingress: Top talkers [A]", "worker")
    for algorithm, summary in watched.summaries.items():
        parts = [value for (name, _), value in talkers.items() if name == algorithm]
        assert len(parts) == 4
        assert sum(parts) == pytest.approx(summary["ingress"]["message_bytes"], rel=0.02)


def test_devices_are_counted_once(watched: Watched) -> None:
    for algorithm in ALGORITHMS:
        series = ask(
            watched,
            query("devices: Devices by state: $algorithm [A]"),
            variables(watched, algorithm),
        )
        by_moment: dict[float, float] = {}
        for _, points in series:
            for moment, value in points:
                by_moment[moment] = by_moment.get(moment, 0) + value
        assert by_moment
        assert max(by_moment.values()) == 4


def test_overhead_shares_are_larger_for_smaller_messages(watched: Watched) -> None:
    for name in ("Framing share [A]", "Header share [A]", "ACK share [A]"):
        shares = last(watched, f"network: {name}")
        assert set(shares) == {(algorithm, "") for algorithm in ALGORITHMS}
        assert all(0 < share < 1 for share in shares.values())
        assert shares["adacomp-0.1", ""] > shares["asgd", ""]
    for algorithm, summary in watched.summaries.items():
        counted = summary["ingress_after_drain"]
        framing = last(watched, "network: Framing share [A]")[algorithm, ""]
        assert framing == pytest.approx(
            1 - counted["payload_bytes"] / counted["message_bytes"], abs=1e-9
        )


def test_the_staleness_is_that_of_four_workers(watched: Watched) -> None:
    medians = ask(
        watched,
        query("devices: Staleness, median and 95th percentile [A]"),
        variables(watched, "asgd"),
    )
    [(_, points)] = medians
    assert all(0 <= value <= 10 for _, value in points)
    buckets = ask(watched, query("devices: Staleness [A]"), variables(watched))
    assert {float(labels["le"]) for labels, _ in buckets} == {
        *(0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
        float("inf"),
    }

"""Faults on the dashboards: a real simulation with faults, replayed to a real Prometheus."""

from collections.abc import Iterator
from typing import Any

import pytest

from testbed.results.reading.recorded_faults import struck
from tests.dashboards.grafana import dashboards
from tests.dashboards.replaying import Replayed, replaying

pytestmark = [pytest.mark.real, pytest.mark.exercises("Prometheus"), pytest.mark.timeout(300)]

WORKERS = 10
SPEC: dict[str, Any] = {
    "engine": "simulation",
    "clock": "virtual",
    "compute": {"distribution": "constant", "mean": "100ms"},
    "training": {"updates": 900},
    "faults": [
        {"who": {"number": 2}, "when": {"iteration": 60}, "how": "freeze"},
        # Long, since a replay goes by the host's time, and a scrape must see it.
        {"who": {"number": 4}, "when": {"iteration": 120}, "how": "partition", "lasting": "6s"},
        {"who": {"devices": ["worker-1"]}, "when": {"iteration": 700}, "how": "kill"},
    ],
}


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayed]:
    with replaying(tmp_path_factory.mktemp("replayed"), WORKERS, **SPEC) as replayed:
        yield replayed


@pytest.mark.parametrize("dashboard", sorted(dashboards()))
def test_each_kind_of_fault_is_marked_when_it_strikes(replayed: Replayed, dashboard: str) -> None:
    marked = {
        labels["kind"]: [moment for moment, value in points if value > 0]
        for labels, points in replayed.ask(f"{dashboard}: Faults [Anno]")
    }
    kinds = {kind for kind, moments in marked.items() if moments}
    assert kinds == {"freeze", "partition", "kill"}
    first = [marked[kind][0] for kind in ("freeze", "partition", "kill")]
    assert first == sorted(first)
    assert replayed.start < first[0] < first[-1] < replayed.end
    # Marked for as long as the query looks back, and no longer.
    assert all(moments[-1] - moments[0] <= 5 for moments in marked.values() if moments)


def test_panels_count_workers_alive_and_out_of_action(replayed: Replayed) -> None:
    [(_, alive)] = replayed.ask("devices: Workers alive [A]")
    assert alive[0][1] == WORKERS
    assert alive[-1][1] == WORKERS - 3
    assert [value for _, value in alive] == sorted((v for _, v in alive), reverse=True)
    frozen, dead, cut, suspected = (
        [value for _, value in replayed.ask(f"devices: Workers out of action [{ref}]")[0][1]]
        for ref in "ABCD"
    )
    assert (frozen[0], frozen[-1]) == (0, 2)
    assert (dead[0], dead[-1]) == (0, 1)
    assert (cut[0], cut[-1]) == (0, 0)
    # Of the four partitioned workers, those that were not frozen before.
    assert max(cut) == struck(replayed.run.faults)["partition"] >= 2
    assert set(suspected) == {0}


def test_devices_struck_are_those_of_the_summary(replayed: Replayed) -> None:
    found = {
        labels["kind"]: points[-1][1]
        for labels, points in replayed.ask("devices: Devices struck [A]")
    }
    assert found == struck(replayed.run.faults) == replayed.run.summary.faults


def test_top_talkers_have_their_class(replayed: Replayed) -> None:
    found = replayed.ask("ingress: Top talkers [A]")
    assert len(found) == WORKERS
    assert {labels["device_class"] for labels, _ in found} == {"all"}
    assert len({labels["worker"] for labels, _ in found}) == WORKERS

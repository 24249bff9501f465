"""The numbers of a synchronous algorithm on the dashboards."""

from collections.abc import Iterator

import pytest

from tests.dashboards.replaying import Replayed, replaying

pytestmark = [pytest.mark.real, pytest.mark.exercises("Prometheus"), pytest.mark.timeout(300)]

WORKERS, WAIT_FOR = 6, 4


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayed]:
    with replaying(
        tmp_path_factory.mktemp("replayed"),
        WORKERS,
        engine="simulation",
        clock="virtual",
        algorithms=[{"name": "sync-sgd", "wait_for": WAIT_FOR}],
        compute={"distribution": "exponential", "mean": "100ms"},
        training={"updates": 100},
    ) as replayed:
        yield replayed


def test_the_panel_has_a_series_for_each_diagnostic(replayed: Replayed) -> None:
    series = {
        labels["diagnostic"]: [value for _, value in points]
        for labels, points in replayed.ask("devices: Diagnostics [A]")
    }
    assert set(series) == {"k", "late"}
    assert set(series["k"]) - {0.0} == {WAIT_FOR}
    late = replayed.run.diagnostics["late"]
    assert series["late"][-1] == late[-1]
    assert max(late) > 0
    assert set(series["late"]) <= {0.0, *map(float, late)}


def test_late_gradients_are_dropped_updates(replayed: Replayed) -> None:
    """The panel of dropped updates, which other tests see at zero."""
    [(_, points)] = replayed.ask("devices: Updates dropped [A]")
    assert max(value for _, value in points) > 0

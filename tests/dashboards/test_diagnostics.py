"""The numbers of a synchronous algorithm, and a measure of the run's own, on the dashboards."""

from collections.abc import Iterator

import pytest
from torch import Tensor

from tests.dashboards.replaying import Replayed, replaying

pytestmark = [pytest.mark.real, pytest.mark.exercises("Prometheus"), pytest.mark.timeout(300)]

WORKERS, WAIT_FOR = 6, 4


def wrong(outputs: Tensor, labels: Tensor) -> Tensor:
    return 100 * (outputs.argmax(1) != labels).float().mean()


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
        evaluation={"every": 25, "measure": {"name": f"{__name__}:wrong", "unit": "%"}},
    ) as replayed:
        yield replayed


def test_k_has_a_panel_and_every_other_diagnostic_a_series(replayed: Replayed) -> None:
    [(_, points)] = replayed.ask("devices: Gradients waited for [A]")
    assert {value for _, value in points} - {0.0} == {WAIT_FOR}
    series = {
        labels["diagnostic"]: [value for _, value in points]
        for labels, points in replayed.ask("devices: Diagnostics [A]")
    }
    assert set(series) == {"late"}
    late = replayed.run.diagnostics["late"]
    assert series["late"][-1] == late[-1]
    assert max(late) > 0
    assert set(series["late"]) <= {0.0, *map(float, late)}


def test_late_gradients_are_dropped_updates(replayed: Replayed) -> None:
    """The panel of dropped pushes, which other tests see at zero."""
    [(_, points)] = replayed.ask("devices: Pushes dropped [A]")
    assert max(value for _, value in points) > 0


def test_the_measure_of_a_runs_own_takes_the_place_of_its_accuracy(replayed: Replayed) -> None:
    measured = replayed.run.evaluations.measured
    assert measured is not None
    [(labels, [(_, last)])] = replayed.ask("compare: Last $measure [A]")
    assert (labels["better"], last) == ("lower", measured[-1])
    [(_, points)] = replayed.ask("ingress: $measure against ingress [Y]")
    assert {value for _, value in points} <= set(measured)
    assert points[-1][1] == measured[-1]
    assert not replayed.ask("compare: Accuracy against ingress [Y]")

"""Simulations in which workers share links: without effect where there is room, slower elsewhere."""

from typing import Any

import numpy as np
import pytest

from testbed.clock.transfers import lines
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.training.settings import Settings
from tests.simulation.test_checkpoints import SHAPED, SYNCHRONOUS, Going, without_host_time

RUN: dict[str, Any] = {
    "name": "shared",
    "seed": 3,
    "dataset": "digits",
    "model": "mlp",
    "training": {"batch_size": 10, "learning_rate": 0.05, "updates": 40},
    "devices": {"workers": 5},
    "engine": "simulation",
    "compute": {"distribution": "gamma", "mean": "100ms", "variation": 0.5},
    "evaluation": {"every": 10},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "pull": {"name": "adacomp", "ratio": 0.05},
    "push-and-wait": SYNCHRONOUS | {"protocol": "push-and-wait"},
    "push-and-interrupt": SYNCHRONOUS | {"protocol": "push-and-interrupt"},
}


def planned(algorithm: str, network: dict[str, Any]) -> Settings:
    spec = RUN | {"algorithms": [ALGORITHMS[algorithm]], "network": network}
    return plan(Spec.model_validate(spec))[0].settings


def clusters(**link: str) -> list[dict[str, Any]]:
    return [{"name": "one", "share": "40%"} | link, {"name": "two", "share": "60%"} | link]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_with_room_for_all_shared_links_change_nothing(algorithm: str) -> None:
    """But for rounding: what flows alike have been served is added up together."""
    fast = {"uplink": "100gbit", "downlink": "100gbit"}
    shared = Going(planned(algorithm, SHAPED | {"server": fast, "clusters": clusters(**fast)}))
    private = Going(planned(algorithm, SHAPED))
    mine, theirs = shared.end(), private.end()
    assert mine.pop("time") == pytest.approx(theirs.pop("time"), rel=1e-12)
    assert mine == theirs
    rows, others = without_host_time(shared.rows), without_host_time(private.rows)
    assert np.allclose(rows["time"], others["time"], rtol=1e-12)
    rows["time"] = others["time"]
    assert np.array_equal(rows, others)


def test_a_delay_alone_needs_no_flows_and_is_added_to_the_devices_own() -> None:
    run = planned("pull", SHAPED | {"clusters": clusters(delay="5ms"), "server": {"delay": "2ms"}})
    assert not run.network.shared_rates
    up, down = lines(run, 0)
    alone = lines(planned("pull", SHAPED), 0)
    assert up.earliest(0.0, 0) == pytest.approx(alone[0].earliest(0.0, 0) + 0.005)
    # A delay is on the uplink: the server's is passed on the way down.
    assert down.earliest(0.0, 0) == pytest.approx(alone[1].earliest(0.0, 0) + 0.002)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_bottleneck_makes_the_run_as_long_as_its_bytes_take(algorithm: str) -> None:
    rate = 2_000_000
    run = planned(algorithm, {"server": {"downlink": f"{rate}bit"}})
    one = Going(run)
    end = one.end()
    # It is full nearly all the time: five workers compute for 100 ms, and a push takes 1.8 s or 90 ms.
    least = 8 * end["ledger"]["payload_bytes"] / rate
    assert least < end["time"] < 1.25 * least + 1.0

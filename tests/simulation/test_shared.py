"""Simulations in which workers share links: without effect where there is room, slower elsewhere."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from testbed.clock.lines import lines
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.training.settings import Settings
from tests.simulation.test_checkpoints import (
    JITTERED,
    SHAPED,
    SYNCHRONOUS,
    TRACED,
    Going,
    without_host_time,
)

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


@pytest.mark.parametrize("link", [SHAPED, JITTERED], ids=["delay", "jitter"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_with_room_for_all_shared_links_change_nothing(
    algorithm: str, link: dict[str, Any]
) -> None:
    """But for rounding: what flows alike have been served is added up together."""
    fast = {"uplink": "100gbit", "downlink": "100gbit"}
    shared = Going(planned(algorithm, link | {"server": fast, "clusters": clusters(**fast)}))
    private = Going(planned(algorithm, link))
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
    up, down = lines(run, 0, 0)
    alone = lines(planned("pull", SHAPED), 0, 0)
    assert up.earliest(0.0, 0) == pytest.approx(alone[0].earliest(0.0, 0) + 0.005)
    # A delay is on the uplink: the server's is passed on the way down.
    assert down.earliest(0.0, 0) == pytest.approx(alone[1].earliest(0.0, 0) + 0.002)


def test_delays_of_both_directions_and_of_all_links_add_up() -> None:
    both: dict[str, Any] = {
        "delay": {"up": "5ms", "down": "7ms"},
        "jitter": {"up": "1ms", "down": "2ms"},
    }
    behind = [one | both for one in clusters()]
    run = planned("pull", SHAPED | both | {"server": both, "clusters": behind})
    up, down = lines(run, 0, 0)
    plain = [
        lines(planned("pull", SHAPED | {"delay": 0}), 0, 0)[way].earliest(0.0, 0) for way in (0, 1)
    ]
    # Up over the device's link, the cluster's and down to the server; each as short as it may be.
    assert up.earliest(0.0, 0) == pytest.approx(plain[0] + 2 * 0.004 + 0.005)
    assert down.earliest(0.0, 0) == pytest.approx(plain[1] + 2 * 0.005 + 0.004)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_bottleneck_makes_the_run_as_long_as_its_bytes_take(algorithm: str) -> None:
    rate = 2_000_000
    run = planned(algorithm, {"server": {"downlink": f"{rate}bit"}})
    one = Going(run)
    end = one.end()
    # It is full nearly all the time: five workers compute for 100 ms, and a push takes 1.8 s or 90 ms.
    least = 8 * end["ledger"]["payload_bytes"] / rate
    assert least < end["time"] < 1.25 * least + 1.0


def faults(seed: int) -> list[dict[str, Any]]:
    """Draw faults; no device is frozen that is cut off before its message was received.

    Such a message leaves the device at the thaw if links are shared, and during the freeze if not.
    """
    draw = random.Random(seed)
    stopping = draw.choice([["freeze"], ["stop-network", "partition"]])
    slow: list[dict[str, Any]] = [
        {"factor": 3},
        {"uplink": "1mbit"},
        {"uplink": "500kbit", "downlink": "2mbit"},
    ]
    kinds: list[Any] = [*stopping, "kill", *({"kind": "slow"} | one for one in slow)]
    found = []
    for _ in range(draw.randint(1, 4)):
        when: dict[str, Any] = draw.choice(
            [
                {"probability": 0.1},
                {"mean_time": f"{draw.randint(300, 2000)}ms"},
                {"time": f"{draw.randint(0, 3000)}ms"},
                {"iteration": draw.randint(1, 40)},
            ]
        )
        fault = {"when": when, "how": draw.choice(kinds), "lasting": f"{draw.randint(20, 900)}ms"}
        if "time" in when and draw.random() < 0.5:
            del fault["lasting"]
        if draw.random() < 0.5:
            fault["who"] = {"number": draw.randint(1, 3)}
        found.append(fault)
    return found


@pytest.mark.parametrize(
    ("shape", "seed"),
    [(SHAPED, seed) for seed in range(1, 5)] + [(TRACED, seed) for seed in range(2, 4)],
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_with_room_for_all_faults_do_the_same(
    algorithm: str, shape: dict[str, Any], seed: int
) -> None:
    """The two ways to compute when messages arrive share no code for outages and changes of rates."""
    fast = {"uplink": "100gbit", "downlink": "100gbit"}
    shared = shape | {"server": fast, "clusters": clusters(**fast)}
    ended = []
    for network in (shape, shared):
        spec = RUN | {"algorithms": [ALGORITHMS[algorithm]], "network": network}
        spec |= {"faults": faults(seed), "devices": {"workers": 5, "suspect_after": "900ms"}}
        one = Going(plan(Spec.model_validate(spec))[0].settings)
        ended.append((one, one.end()))
    (private, theirs), (other, mine) = ended
    assert mine["parameters"] == theirs["parameters"]
    for key in ("payload_bytes", "message_bytes"):
        assert mine["ledger"][key] == theirs["ledger"][key]
        assert mine["drained"][key] == theirs["drained"][key]
    rows, others = without_host_time(other.rows), without_host_time(private.rows)
    assert np.allclose(rows["time"], others["time"], rtol=1e-9)
    assert rows["worker"].tolist() == others["worker"].tolist()
    assert rows["base_version"].tolist() == others["base_version"].tolist()
    assert [_rounded(one) for one in other.faults] == [_rounded(one) for one in private.faults]


def _rounded(record: Mapping[str, object]) -> dict[str, object]:
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in record.items()}

"""Simulated peers that are killed: what the others do, and what is counted."""

from typing import Any

import numpy as np
import pytest

from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.wire.frames import HEADER, SECRET_SIZE
from tests.simulation.test_simulated import Simulated

BOUNDED: dict[str, Any] = {"name": "ako", "partitions": 3, "staleness_bound": 0}
CLUSTER = {"name": "one", "share": "100%", "uplink": "90mbit", "downlink": "90mbit"}
NETWORKS: dict[str, Any] = {
    "own links": {"uplink": "100mbit", "downlink": "100mbit"},
    "shared links": {"uplink": "100mbit", "downlink": "100mbit", "clusters": [CLUSTER]},
}
UPDATES = 60


def simulated(**changes: Any) -> Simulated:
    """Simulate four peers, with other keys of the experiment file."""
    spec = {
        "name": "peers",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": UPDATES},
        "devices": {"workers": 4},
        "clock": "virtual",
        "engine": "simulation",
        "evaluation": {"every": 20},
    }
    return Simulated(plan(Spec.model_validate(spec | changes))[0].settings)


def run(algorithm: dict[str, Any], network: str, *when: dict[str, Any]) -> Simulated:
    """Run four peers; each of the last ones is killed at one of the moments."""
    return simulated(
        algorithms=[algorithm],
        network=NETWORKS[network],
        compute={"distribution": "exponential", "mean": "30ms"},
        faults=[
            {"who": {"devices": [f"worker-{3 - i}"]}, "how": "kill", "when": one}
            for i, one in enumerate(when)
        ],
    )


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "algorithm",
    [BOUNDED, {"name": "all-to-all", "staleness_bound": 0}],
    ids=lambda one: one["name"],
)
def test_nobody_waits_for_a_dead_peer(algorithm: dict[str, Any], network: str) -> None:
    found = run(algorithm, network, {"time": "200ms"}, {"iteration": 40})
    assert found.system.version == UPDATES
    deaths = [(one["devices"], one["phase"]) for one in found.faults]
    assert deaths == [([3], "begin"), ([2], "begin")]
    assert found.faults[0]["time"] == 0.2
    assert found.faults[1]["iteration"] == 40
    rows = found.rows
    assert rows["time"][rows["worker"] == 3].max() <= 0.2
    assert rows["iteration"][rows["worker"] == 2].max() <= 40
    # The bound of 0 lets a peer be at most p + 1 steps ahead of any that is there.
    steps = np.bincount(rows["worker"][rows["iteration"] > 40], minlength=4)
    assert steps[0] + steps[1] == UPDATES - 40
    again = run(algorithm, network, {"time": "200ms"}, {"iteration": 40})
    assert (again.digest, again.after, again.faults) == (found.digest, found.after, found.faults)


def test_without_the_death_the_bound_lets_no_peer_run_away() -> None:
    found = run(BOUNDED, "own links")
    lead = [values[2] for values in found.notes.diagnoses]
    assert 0 < max(lead) <= 3 + 1
    assert [values[1] for values in found.notes.diagnoses] == [3.0] * UPDATES


def test_the_last_peer_trains_alone_and_the_dead_are_sent_nothing() -> None:
    found = run(BOUNDED, "own links", *[{"time": "100ms"}] * 3)
    assert found.system.version == UPDATES
    rows = found.rows
    alone = rows[rows["time"] > 0.1]
    assert set(alone["worker"].tolist()) == {0}
    assert not alone["message_bytes"].any()
    greetings = 6 * (HEADER.size + SECRET_SIZE + HEADER.size)
    sent = int(rows["message_bytes"].sum())
    peers = found.system.own_summary()["peers"].values()
    undelivered = sum(one["undelivered_bytes"] for one in peers)
    assert undelivered > 0
    assert found.after["message_bytes"] == greetings + sent - undelivered

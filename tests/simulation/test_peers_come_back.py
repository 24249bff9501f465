"""Simulated peers that are killed and come back: with which parameters, when, and what is counted."""

from typing import Any

import numpy as np
import pytest

from testbed.wire.frames import HEADER, SECRET_SIZE
from tests.simulation.test_peers_die import NETWORKS, simulated
from tests.simulation.test_simulated import Simulated

UPDATES = 80
AKO: dict[str, Any] = {"name": "ako", "partitions": 2, "staleness_bound": 1}
GREETINGS = 2 * HEADER.size + SECRET_SIZE
"""Bytes of a greeting and its answer."""


def run(
    *faults: dict[str, Any],
    network: dict[str, Any] | None = None,
    every: int | None = None,
    algorithm: dict[str, Any] = AKO,
) -> Simulated:
    """Run four peers whose gradients take about 10 ms."""
    return simulated(
        training={"updates": UPDATES, "learning_rate": 0.005},
        algorithms=[algorithm],
        network=network or {"delay": "1ms"},
        compute={"distribution": "uniform", "mean": "10ms"},
        checkpoints={"every": every},
        faults=[{"who": {"devices": ["worker-3"]}} | fault for fault in faults],
    )


def kill(at: int, lasting: int) -> dict[str, Any]:
    return {"how": "kill", "when": {"time": f"{at}ms"}, "lasting": f"{lasting}ms"}


def ends(found: Simulated) -> list[tuple[list[int], float]]:
    """Return which killed peers came back, and when."""
    kills = [one for one in found.faults if one["fault"] == "kill" and one["phase"] == "end"]
    return [(one["devices"], round(one["time"], 9)) for one in kills]


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_a_killed_peer_comes_back_with_the_initial_parameters(network: dict[str, Any]) -> None:
    found = run(kill(45, 50), network=network)
    assert ends(found) == [([3], 0.095)]
    assert found.returns == [(3, 0)]
    rows = found.rows
    own = rows[rows["worker"] == 3]
    assert np.sum((own["time"] > 0.045) & (own["time"] < 0.095)) == 0
    again = own[own["time"] > 0.095]
    assert again["base_version"][0] == 0
    assert len(again) > 10
    # The others send it something again: its bound counts their messages.
    assert found.system.version == UPDATES
    one = run(kill(45, 50), network=network)
    assert (one.digest, one.after, one.faults) == (found.digest, found.after, found.faults)


def test_greetings_of_a_peer_that_comes_back_are_counted() -> None:
    found = run(kill(45, 50), kill(200, 1))
    times = len(ends(found))
    pairs = 6 + 3 * times
    sent = int(found.rows["message_bytes"].sum())
    stops = 12 * HEADER.size
    peers = found.system.own_summary()["peers"].values()
    undelivered = sum(one["undelivered_bytes"] for one in peers)
    assert found.after["message_bytes"] == pairs * GREETINGS + sent + stops - undelivered
    assert found.before["message_bytes"] <= found.after["message_bytes"] - stops


@pytest.mark.parametrize(("every", "has_one"), [(1, True), (2, True), (50, False)])
def test_it_goes_on_from_its_last_checkpoint(every: int, has_one: bool) -> None:
    found = run(kill(45, 50), every=every, algorithm={"name": "all-to-all"})
    own = found.rows[found.rows["worker"] == 3]
    before = own[own["time"] < 0.045]
    kept = before[every - 1 :: every]
    ((peer, began),) = found.returns
    assert peer == 3
    # A row has the version at which its gradient was computed; the step itself makes one more.
    at = 0 if not len(kept) else int(kept["base_version"][-1] + kept["staleness"][-1]) + 1
    assert began == at
    assert own[own["time"] > 0.095]["base_version"][0] == began
    assert (began > 0) is has_one


def test_its_return_is_put_off_while_its_link_is_down_or_another_peer_cannot_answer() -> None:
    down = {"how": "stop-network", "when": {"time": "40ms"}, "lasting": "80ms"}
    assert ends(run(down, kill(45, 50))) == [([3], 0.12)]
    for how in ("freeze", "stop-network", "partition"):
        other = {"who": {"devices": ["worker-1"]}, "how": how, "when": {"time": "90ms"}}
        assert ends(run(kill(45, 50), other | {"lasting": "25ms"})) == [([3], 0.115)]
    slow = {"how": {"kind": "slow", "factor": 9}, "when": {"time": "50ms"}, "lasting": "10ms"}
    assert ends(run(kill(45, 50), slow)) == [([3], 0.095)]


def test_peers_that_are_dead_together_come_back_in_any_order() -> None:
    other = {"who": {"devices": ["worker-2"]}} | kill(50, 20)
    found = run(kill(45, 50), other)
    assert ends(found) == [([2], 0.07), ([3], 0.095)]
    together = run(kill(45, 50), {"who": {"devices": ["worker-2"]}} | kill(55, 40))
    assert ends(together) == [([2], 0.095), ([3], 0.095)]
    last = {peer: found.rows["time"][found.rows["worker"] == peer].max() for peer in range(4)}
    assert min(last.values()) > 0.15


def test_it_may_be_killed_again_and_again() -> None:
    often = {"how": "kill", "when": {"mean_time": "40ms"}, "lasting": "10ms"}
    found = run(often, every=1)
    assert len(ends(found)) > 3
    assert len(found.returns) == len(ends(found))
    assert found.system.version == UPDATES


def test_a_slow_link_outlives_its_process() -> None:
    slow = {"how": {"kind": "slow", "uplink": "2mbit"}, "when": {"time": "40ms"}, "lasting": "10s"}
    for network in NETWORKS.values():
        usual, slowed = run(kill(45, 50), network=network), run(slow, kill(45, 50), network=network)
        # The others are held by their bound.
        assert slowed.rows["time"].max() > 3 * usual.rows["time"].max()


def test_it_leaves_out_peers_that_are_lost_for_good() -> None:
    lost = {"who": {"devices": ["worker-1"]}, "how": "freeze", "when": {"time": "30ms"}}
    found = run(lost, kill(45, 50), algorithm=AKO | {"staleness_bound": 50})
    assert ends(found) == [([3], 0.095)]
    back = found.rows[(found.rows["worker"] == 3) & (found.rows["time"] > 0.095)]
    before = found.rows[(found.rows["worker"] == 3) & (found.rows["time"] < 0.045)]
    one = back["message_bytes"][0] / before["message_bytes"][0]
    assert one == pytest.approx(2 / 3, rel=0.01)

"""Simulated peers that are frozen, cut off and slowed down: when they step; nothing is lost."""

from typing import Any

import numpy as np
import pytest

from tests.simulation.test_peers_die import NETWORKS, simulated
from tests.simulation.test_simulated import Simulated

FREE = {"delay": "1ms"}
UPDATES = 60


def run(
    *faults: dict[str, Any],
    network: dict[str, Any] = FREE,
    tau: int | None = None,
    suspect_after: str | None = None,
) -> Simulated:
    """Run three peers whose gradients take 10 ms."""
    return simulated(
        training={"updates": UPDATES, "learning_rate": 0.005},
        algorithms=[{"name": "ako", "partitions": 2, "staleness_bound": tau or 60}],
        devices={"workers": 3, "suspect_after": suspect_after},
        network=network,
        compute={"distribution": "constant", "mean": "10ms"},
        faults=[{"who": {"devices": ["worker-2"]}} | fault for fault in faults],
    )


def times_of(found: Simulated, peer: int) -> list[float]:
    """Return when a peer took its steps, in milliseconds."""
    rows = found.rows
    return [round(1000 * one, 6) for one in rows["time"][rows["worker"] == peer].tolist()]


def test_a_frozen_peer_computes_on_at_its_thaw_and_takes_in_what_waited() -> None:
    found = run({"how": "freeze", "when": {"time": "35ms"}, "lasting": "50ms"})
    assert times_of(found, 2)[:6] == [10, 20, 30, 90, 100, 110]
    assert times_of(found, 0)[:4] == [10, 20, 30, 40]
    rows = found.rows
    first = rows[(rows["worker"] == 2) & (rows["time"] > 0.04)][0]
    # Both others stepped at 40, 50, 60, 70 and 80 ms; what they sent waited until 85 ms. The messages
    # of their steps at 30 ms arrived before the freeze.
    assert first["staleness"] == 2 * 6
    assert [(one["fault"], one["phase"], one["time"]) for one in found.faults] == [
        ("freeze", "begin", 0.035),
        ("freeze", "end", pytest.approx(0.085)),
    ]


def test_slow_peers_compute_longer_and_factors_multiply() -> None:
    slow = {"kind": "slow", "factor": 2}
    found = run(
        {"how": slow, "when": {"time": "15ms"}, "lasting": "40ms"},
        {"how": slow, "when": {"time": "35ms"}, "lasting": "10ms"},
    )
    # The computation of 20 ms to 40 ms began under one of them, the next under both.
    assert times_of(found, 2)[:6] == [10, 20, 40, 80, 90, 100]


@pytest.mark.parametrize("how", ["stop-network", "partition"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_peer_that_is_cut_off_loses_nothing(network: str, how: str) -> None:
    outage = {"how": how, "when": {"time": "35ms"}, "lasting": "200ms"}
    found = run(outage, network=NETWORKS[network], tau=1)
    assert found.system.version == UPDATES
    rows = found.rows
    # The bound holds the others, and no more than 2 of its own steps wait for its link.
    during = rows[(rows["time"] > 0.06) & (rows["time"] < 0.235)]
    assert len(during) <= 3 * (2 + 1 + 1)
    again = rows[rows["time"] > 0.235]
    assert set(again["worker"].tolist()) == {0, 1, 2}
    # As many messages arrive as of steps: peers that wait for each other have the same number.
    steps = np.bincount(rows["worker"], minlength=3)
    assert max(steps) - min(steps) <= 2 + 1 + 1


def test_slow_links_of_a_peer_delay_what_it_sends_and_what_it_is_sent() -> None:
    slow = {"how": {"kind": "slow", "uplink": "2mbit"}, "when": {"time": "20ms"}, "lasting": "1s"}
    for network in NETWORKS.values():
        usual, slowed = run(network=network), run(slow, network=network)
        assert len(times_of(slowed, 2)) < len(times_of(usual, 2)) / 2


def test_a_peer_that_is_lost_for_good_is_waited_for_only_by_a_bound() -> None:
    for how in ("freeze", "stop-network"):
        fault = {"how": how, "when": {"time": "35ms"}}
        found = run(fault)
        assert found.system.version == UPDATES
        assert max(times_of(found, 2)) <= 35
        held = run(fault, tau=1)
        assert held.system.version < UPDATES
        assert held.system.clock.why_it_ended == "no peer will take a step any longer"
        suspected = run(fault, tau=1, suspect_after="100ms")
        assert suspected.system.version == UPDATES
        # It is waited for once, by both: 2 + 1 + 1 steps more than it took, and 100 ms.
        assert times_of(suspected, 0)[:9] == [10, 20, 30, 40, 50, 60, 70, 180, 190]


def test_a_peer_that_speaks_again_is_waited_for_again_from_where_the_bound_is() -> None:
    found = run(
        {"how": "freeze", "when": {"time": "35ms"}, "lasting": "300ms"},
        tau=1,
        suspect_after="100ms",
    )
    # Frozen until 335 ms, it takes its fourth step at 340 ms. The others wait for its steps again.
    assert times_of(found, 2)[3:6] == [340, 350, 360]
    later = [one for one in times_of(found, 0) if one > 341]
    own = [one for one in times_of(found, 2) if one > 341]
    assert abs(len(later) - len(own)) <= 2
    assert found.system.version == UPDATES

"""Simulated Downpour, by one server and by several, and workers within a bound of staleness."""

from typing import Any

import numpy as np
import pytest

from testbed.simulation.served_system import ServedSystem
from tests.simulation.test_simulated import NETWORKS, UPDATES, Simulated, settings

ETA = np.float32(0.05)


def run(
    *, servers: int = 1, workers: int = 4, network: str = "unshaped", **options: Any
) -> Simulated:
    options = {"name": "downpour"} | options
    devices = {"workers": workers, "servers": servers}
    changes: dict[str, Any] = {
        "devices": devices,
        "network": NETWORKS[network],
        "algorithms": [options],
    }
    changes["compute"] = {"distribution": "cvb", "mean": "100ms", "machine_variation": 0.6}
    return Simulated(settings("asgd", **changes))


@pytest.mark.parametrize(("servers", "network"), [(1, "unshaped"), (3, "shaped")])
@pytest.mark.parametrize(("push_every", "fetch_every"), [(2, 3), (3, 1)])
def test_one_worker_is_the_naive_loop(
    push_every: int, fetch_every: int, servers: int, network: str
) -> None:
    periods = {"push_every": push_every, "fetch_every": fetch_every}
    found = run(servers=servers, workers=1, network=network, **periods)
    learner, batches, theta = found.naive()
    own, added = theta.copy(), np.zeros_like(theta)
    pushes = gradients = 0
    while pushes < UPDATES:
        np.copyto(learner.parameters, own)
        gradient, _ = learner.gradient(*batches.gather(batches.draw()))
        gradients += 1
        own -= ETA * gradient
        added += gradient
        if gradients % push_every == 0:
            theta -= ETA * added
            added[:] = 0
            pushes += 1
        if gradients % fetch_every == 0:
            own = theta.copy()
    # torch takes a step in one rounding, numpy in two.
    np.testing.assert_allclose(found.system.parameters, theta, rtol=0, atol=1e-5)


def test_with_both_periods_1_it_is_asgd_without_division() -> None:
    assert run().digest == run(name="momentum-asgd", momentum=0).digest


@pytest.mark.parametrize("servers", [1, 2])
def test_messages_are_pushes_and_questions_at_their_periods(servers: int) -> None:
    found = run(servers=servers, workers=1, push_every=2, fetch_every=3)
    greetings, pushes = servers * (64 + 32), servers * UPDATES
    questions = servers * (2 * UPDATES // 3)  # one more has been sent than was answered
    assert found.before["payload_bytes"] == UPDATES * found.size
    message = greetings + UPDATES * found.size + 32 * pushes + 32 * questions
    assert found.before["message_bytes"] == message


def pushes_before(workers: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Return how often each worker is among the first ``count`` pushes."""
    return np.bincount(workers[:count], minlength=4)


def furthest_ahead(found: Simulated) -> int:
    """Return by how many pushes a worker was ahead of the slowest when it was sent parameters."""
    rows = found.rows[found.rows["server"] == 0]
    counts = [(pushes_before(rows["worker"], one["base_version"]), one["worker"]) for one in rows]
    return max(int(count[worker] - count.min()) for count, worker in counts)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("bound", [0, 2, None])
def test_no_worker_is_sent_parameters_further_ahead_than_the_bound(
    bound: int | None, servers: int
) -> None:
    found = run(servers=servers, name="asgd", staleness_bound=bound)
    assert isinstance(found.system, ServedSystem)
    assert found.system.version == UPDATES
    if bound is None:
        assert furthest_ahead(found) > 2
    else:
        assert furthest_ahead(found) == bound


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_nobody_waits_for_ever_for_a_worker_that_is_gone(how: str) -> None:
    faults = [{"who": {"devices": ["worker-1"]}, "when": {"time": "300ms"}, "how": how}]
    algorithm = {"name": "asgd", "staleness_bound": 1}
    found = Simulated(settings("asgd", algorithms=[algorithm], faults=faults))
    assert found.system.version == UPDATES
    assert [one[:2] for one in found.notes.noticed] == [("suspected", 1)] * (how == "freeze")


def test_a_worker_that_comes_back_holds_nobody_up_by_what_it_missed() -> None:
    faults = [
        {
            "who": {"devices": ["worker-1"]},
            "when": {"time": "100ms"},
            "how": "kill",
            "lasting": "700ms",
        }
    ]
    algorithm = {"name": "asgd", "staleness_bound": 1}
    found = Simulated(settings("asgd", algorithms=[algorithm], faults=faults))
    times = np.diff(found.rows["time"])
    assert found.system.version == UPDATES
    assert times.max() < 0.7  # seconds without any update
    own = np.bincount(found.rows["worker"], minlength=4)
    assert own[1] < own.max() - 1  # it has missed more than the bound

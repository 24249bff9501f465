"""Simulated EASGD, by one server and by several: one worker, and what is sent."""

from typing import Any

import numpy as np
import pytest

from tests.simulation.test_simulated import NETWORKS, UPDATES, Simulated, settings

ETA, ALPHA = np.float32(0.05), np.float32(0.3)


def run(*, servers: int, workers: int, network: str, exchange_every: int) -> Simulated:
    changes: dict[str, Any] = {
        "devices": {"workers": workers, "servers": servers},
        "network": NETWORKS[network],
        "algorithms": [
            {"name": "easgd", "exchange_every": exchange_every, "elasticity": float(ALPHA)}
        ],
    }
    return Simulated(settings("asgd", **changes))


@pytest.mark.parametrize(("servers", "network"), [(1, "unshaped"), (3, "shaped")])
@pytest.mark.parametrize("tau", [1, 4])
def test_one_worker_is_the_naive_loop(tau: int, servers: int, network: str) -> None:
    found = run(servers=servers, workers=1, network=network, exchange_every=tau)
    learner, batches, centre = found.naive()
    own = centre.copy()
    for _ in range(UPDATES):
        for _ in range(tau):
            np.copyto(learner.parameters, own)
            gradient, _ = learner.gradient(*batches.gather(batches.draw()))
            own -= ETA * gradient
        e = ALPHA * (own - centre)
        own -= e
        centre += e
    np.testing.assert_allclose(found.system.parameters, centre, rtol=0, atol=1e-4)


def test_an_exchange_takes_the_bytes_of_a_push_and_a_pull_of_asgd() -> None:
    found = run(servers=1, workers=4, network="unshaped", exchange_every=1)
    asgd = Simulated(settings("asgd", devices={"workers": 4}, network=NETWORKS["unshaped"]))
    assert found.before == asgd.before
    assert found.digest != asgd.digest

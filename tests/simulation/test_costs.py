"""Messages that cost servers time, in whole simulations, against values known in closed form."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.wire.frames import HEADER
from tests.simulation.test_utilisation import by_name, simulated

AT_ONCE: dict[str, Any] = {"network": {}, "waiting": {"distribution": "constant", "mean": 0}}
"""Links that take no time, and workers that do not wait."""


def test_updates_of_a_saturated_server_come_at_the_rate_of_its_processor(tmp_path: Path) -> None:
    """64 workers compute for 10 ms; an update costs their server a push, a question and an answer."""
    run = simulated(
        tmp_path,
        **AT_ONCE,
        devices={"workers": 64},
        training={"updates": 300},
        compute={"distribution": "gamma", "variation": 0.1, "mean": "10ms"},
        costs={"message": "1ms", "byte": "0.5ns", "apply": "2ns"},
    )
    payload = int(run.pushes.column("payload_bytes").to_numpy()[0])
    cost = 3 * (1e-3 + HEADER.size * 0.5e-9) + 2 * payload * 0.5e-9 + payload / 4 * 2e-9
    times = run.pushes.column("time").to_numpy()[64:]
    assert len(times) == 300 - 64
    assert np.diff(times) == pytest.approx(np.full(len(times) - 1, cost))
    server = by_name(run)["server"]
    assert server.cpu_utilisation == pytest.approx(1)
    # A worker's turn comes again after those of all; meanwhile it computes, and waits.
    assert server.message_wait == pytest.approx(63 * cost - 0.01, rel=0.1)


def test_a_server_takes_the_time_of_the_worker_on_its_machine(tmp_path: Path) -> None:
    """Two workers and servers, 10 ms for each message; a round is the same at both servers.

    At first worker 0 has its parameters after 10 ms and worker 1 after 20, until when server 0 sends
    them: so worker 0 computes until 120 ms, as worker 1 does. A server takes 20 ms for a push with its
    question and 10 ms for the answer. Worker 0 is answered 30 ms after that moment and worker 1 60 ms
    after it, and until then server 0 leaves worker 0 no time to compute.
    """
    rounds = 5
    run = simulated(
        tmp_path,
        **AT_ONCE,
        devices={"workers": 2, "servers": 2, "placement": "co-located"},
        training={"updates": 2 * rounds},
        compute={"distribution": "constant", "mean": "100ms"},
        costs={"message": "10ms"},
    )
    assert run.summary.training_seconds == pytest.approx(0.12 + 0.16 * (rounds - 1) + 0.05)
    devices, busy = by_name(run), 0.02 + 0.06 * rounds - 0.01
    assert devices["server-0"].cpu_seconds == pytest.approx(busy)
    assert devices["worker-0"].cpu_seconds == pytest.approx(0.1 * rounds)
    assert devices["machine-0"].cpu_seconds == pytest.approx(busy + 0.1 * rounds)

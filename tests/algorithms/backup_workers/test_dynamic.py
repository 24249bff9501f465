"""DBW's choice of k: its rule, and the analytic optimum where everything is known."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from testbed.algorithms.backup_workers.dynamic import DynamicOptions, DynamicServer
from testbed.algorithms.server_half import Protocol
from testbed.updates import DenseUpdate

N = 8


class Quadratic:
    """F(w) = L/2 · ‖w‖², of which a gradient has normal noise with the variance V in sum."""

    def __init__(self, smoothness: float, size: int, spread: float, seed: int) -> None:
        self.smoothness, self.size, self.spread = smoothness, size, spread
        self.draw = np.random.default_rng(seed)

    def loss(self, w: npt.NDArray[np.float32]) -> float:
        return self.smoothness / 2 * float(np.sum(np.square(w, dtype=np.float64)))

    def gradient(self, w: npt.NDArray[np.float32]) -> DenseUpdate:
        noise = self.draw.normal(0, math.sqrt(self.spread / self.size), self.size)
        return DenseUpdate((self.smoothness * w + noise).astype(np.float32))

    def iterate(self, server: DynamicServer, seconds: npt.NDArray[np.float64], now: float) -> float:
        """Let all workers begin together, and push in the order of ``seconds``, until the update."""
        w, version = server.parameters.copy(), server.version
        for worker in range(N):
            server.pull(worker, time=now)
        for worker in np.argsort(seconds, kind="stable"):
            at = now + float(seconds[worker])
            pushed = self.gradient(w)
            server.push(int(worker), pushed, version, loss=self.loss(w), time=at)
            if server.version > version:
                return at
        raise AssertionError("no update")


def started(problem: Quadratic, rate: float, **options: object) -> DynamicServer:
    chosen = DynamicOptions.model_validate({"protocol": "push-and-interrupt", **options})
    server = DynamicServer(np.full(problem.size, 1, np.float32), rate, N, chosen)
    for worker in range(N):
        server.joined(worker)
    return server


@pytest.mark.parametrize("spread", [2.0, 60.0, 400.0])
def test_k_is_the_analytic_optimum_within_one(spread: float) -> None:
    """L, σ² and the gradient are known, and so are the times: argmax of (9) over order statistics."""
    rate, smoothness, size = 0.02, 2.0, 400
    problem = Quadratic(smoothness, size, spread, 3)
    # The loss is exact, and L̂ of one iteration is far from exact: its mean over many is near it.
    server = started(problem, rate, average_over=40, untried="lowest")
    harmonic = np.cumsum(1 / np.arange(N, 0, -1))
    mean_times = 0.3 + 0.7 * harmonic
    now, off = 0.0, []
    for iteration in range(90):
        seconds = 0.3 + 0.7 * problem.draw.exponential(size=N)
        now = problem.iterate(server, seconds, now)
        norm = smoothness**2 * float(np.sum(np.square(server.parameters, dtype=np.float64)))
        half, k = smoothness * rate**2 / 2, np.arange(1, N + 1)
        gains = (rate - half) * norm - half * spread / k
        best = int(np.argmax(gains / mean_times)) + 1
        if iteration > 45:
            off.append(abs(server.wait_for - best))
    assert np.mean(np.array(off) <= 1) > 0.8, off


@pytest.mark.parametrize("spread", [1.0, 0.0])
@pytest.mark.parametrize("gain", ["estimated", "k"])
def test_it_waits_for_all_where_all_come_at_one_moment(gain: str, spread: float) -> None:
    """Deterministic times: more gradients cost nothing, also where they bring nothing."""
    problem = Quadratic(1.0, 20, spread, 4)
    server, now = started(problem, 0.1, gain=gain), 0.0
    for _ in range(12):
        assert server.wait_for == N
        now = problem.iterate(server, np.ones(N), now)


def test_it_begins_with_all_and_then_waits_for_few_where_noise_is_small() -> None:
    """At first nothing is known; without noise one gradient is as good as all."""
    problem = Quadratic(1.0, 20, 1e-9, 5)
    server, now, chosen = started(problem, 0.05, untried="lowest"), 0.0, []
    for _ in range(8):
        chosen.append(server.wait_for)
        now = problem.iterate(server, np.arange(1.0, N + 1), now)
    assert chosen[:2] == [N, N]
    assert chosen[-1] == 1
    assert server.diagnose()["k"] == 1


def test_blind_dbw_takes_the_largest_rate_of_gradients() -> None:
    """k / T̂(k) is largest at k = 6 of these times, whatever the loss does."""
    problem = Quadratic(1.0, 20, 1.0, 6)
    server, now = started(problem, 0.05, gain="k", untried="lowest"), 0.0
    seconds = np.array([5.0, 5.1, 5.2, 5.3, 5.4, 5.5, 9.0, 12.0])
    for _ in range(12):
        now = problem.iterate(server, seconds, now)
    assert server.wait_for == 6


@pytest.mark.parametrize(("growth", "expected"), [(1.02, 2), (1.005, 1)])
def test_k_grows_where_the_loss_has_grown(growth: float, expected: int) -> None:
    """(19), with β = 1.01."""
    server = started(Quadratic(1.0, 4, 1e-9, 8), 0.05, untried="lowest")
    now, loss = 0.0, 1.0
    for iteration in range(9):
        loss = loss - 0.02 if iteration < 8 else loss * growth
        version = server.version
        for worker in range(N):
            server.pull(worker, time=now)
        for worker in range(N):
            if server.version == version:
                update = DenseUpdate(np.full(4, 0.5, np.float32))
                now += 1
                server.push(worker, update, version, loss=loss, time=now)
        if iteration == 7:
            assert server.wait_for == 1
    assert server.wait_for == expected


@pytest.mark.parametrize("protocol", ["pull", "push-and-wait"])
def test_late_gradients_and_reports_are_samples(protocol: Protocol) -> None:
    """The i-th gradient of a version counts for t_{h,i}, also when i > k."""
    options = DynamicOptions(protocol=protocol)
    server = DynamicServer(np.zeros(2, np.float32), 0.1, 3, options)
    server.wait_for = 2
    update = DenseUpdate(np.ones(2, np.float32))
    for worker in range(3):
        server.pull(worker, time=0.0)
    server.push(0, update, 0, loss=1.0, time=1.0)
    server.push(1, update, 0, loss=1.0, time=2.0)
    assert server.version == 1
    if protocol == "pull":
        assert server.push(2, update, 0, loss=1.0, time=5.0) is None
    else:
        server.finished(2, 0, time=5.0)
    # Before version 0 nothing had been waited for: it counts as after all three.
    assert server._times._means[2].tolist() == [1.0, 2.0, 5.0]
    server.push(2, update, 1, loss=1.0, time=6.0)
    assert server._times._means[1, 0] == 4.0  # two had been waited for, and version 1 began at 2 s


def test_workers_that_are_gone_are_not_waited_for() -> None:
    """Here two of three are left, and k is 3."""
    server = DynamicServer(np.zeros(2, np.float32), 0.1, 3, DynamicOptions())
    for worker in range(3):
        server.joined(worker)
        server.pull(worker, time=0.0)
    server.forget(2)
    update = DenseUpdate(np.ones(2, np.float32))
    for worker in range(2):
        server.push(worker, update, 0, loss=1.0, time=1.0)
    assert server.version == 1
    assert server.diagnose()["k"] == 2


def after_ten_updates_of_one() -> DynamicServer:
    """Worker 0 makes ten updates of one gradient, a second apart; 1 reports five of them, 2 none."""
    server = DynamicServer(np.zeros(2, np.float32), 0.1, 3, DynamicOptions())
    for worker in range(3):
        server.joined(worker)
        server.pull(worker, time=0.0)
    for version in range(10):
        server.wait_for = 1
        server.pull(0, time=float(version))
        update = DenseUpdate(np.ones(2, np.float32))
        server.push(0, update, version, loss=1.0, time=version + 1.0)
        if version < 5:
            server.finished(1, version, time=version + 1.5)
    return server


def test_a_report_is_a_sample_however_late_it_is() -> None:
    """§3.2 has no limit: here version 0 is ten updates old, of three workers."""
    server = after_ten_updates_of_one()
    server.finished(2, 0, time=20.0)
    assert server._times._counts[2].tolist() == [1, 1, 1]
    assert server._times._means[2].tolist() == [1.0, 1.5, 20.0]
    server.finished(2, 3, time=21.0)  # it went on at the newest that it had been sent
    assert server._times._means[0, 2] == 21.0 - 3.0


def test_versions_are_forgotten_when_no_worker_can_send_anything_of_them() -> None:
    """A worker that is lost and comes back computes at the version of its return."""
    server = after_ten_updates_of_one()
    assert sorted(server._arrivals) == list(range(11))
    server.forget(2)
    assert sorted(server._arrivals) == list(range(5, 11))
    server.joined(2)
    server.pull(2, time=10.0)
    server.finished(1, 9, time=10.0)
    server.wait_for = 1
    server.push(0, DenseUpdate(np.ones(2, np.float32)), 10, loss=1.0, time=11.0)
    assert sorted(server._arrivals) == [10, 11]
    for worker in (0, 1):
        server.forget(worker)
    assert sorted(server._arrivals) == [10, 11]

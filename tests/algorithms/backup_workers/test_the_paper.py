"""DBW's whole choice of k against a reference written from paper 004 alone: (10) to (19).

The reference keeps the whole history in double precision and computes everything anew for each
iteration; (17) is solved for all n² cells by another solver. Losses are drawn at random, so that they
grow and fall at every k, k = n included.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import LinearConstraint, minimize

from testbed.algorithms.backup_workers.dynamic import DynamicOptions, DynamicServer
from testbed.updates import DenseUpdate

Vector = npt.NDArray[np.float64]
BETA, ETA, SIZE = 1.01, 0.125, 6


@dataclass
class Iteration:
    """One w_t: h = k_{t-1}, when it was made, the gradients and losses, and when each of n arrived."""

    h: int
    began: float
    gradients: list[Vector] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass
class Reference:
    """All that the server has seen; what the paper leaves open is as the options say."""

    n: int
    d: int
    clip: bool
    blind: bool
    naive: bool
    iterations: list[Iteration] = field(default_factory=list)

    def gains(self) -> Vector | None:
        """Return Ĝ_{k,t} for k = 1 to n, by (10) to (16)."""
        spreads: list[float] = []
        norms: list[float] = []
        constants: list[float] = []
        for t, one in enumerate(self.iterations):
            g, k = np.array(one.gradients), len(one.gradients)
            mean = g.sum(0) / k
            if k > 1:
                spreads.append(((g - mean) ** 2).sum() / (k - 1))
            else:  # (10) is undefined: the last estimate
                spreads.append(spreads[-1] if spreads else 0.0)
            norms.append(max((mean**2).sum() - spreads[-1] / k, 0.0))
            if t > 0:
                before = self.iterations[t - 1]
                decrease = np.mean(before.losses) - np.mean(one.losses)
                divisor = ETA**2 * (norms[t - 1] + spreads[t - 1] / len(before.gradients))
                found = 2 * (ETA * norms[t - 1] - float(decrease)) / divisor
                constants.append(max(found, 0.0) if self.clip else found)
        if not constants:
            return None
        norm, spread, constant = (float(np.mean(x[-self.d :])) for x in (norms, spreads, constants))
        every: Vector = np.arange(1.0, self.n + 1)
        if self.blind:
            return every
        half = constant * ETA**2 / 2
        return np.asarray((ETA - half) * norm - half * spread / every)

    def seconds(self) -> tuple[Vector, npt.NDArray[np.bool_]]:
        """Return T̂_{k,t} for k = 1 to n, by (17) or naively, and which have samples of their own."""
        n = self.n
        samples: list[list[list[float]]] = [[[] for _ in range(n)] for _ in range(n)]
        for one in self.iterations:
            for i, time in enumerate(one.times):
                samples[one.h - 1][i].append(time - one.began)
        weight = np.array([len(x) for row in samples for x in row], float)
        target = np.array([np.mean(x) if x else 0.0 for row in samples for x in row])
        if self.naive:  # the average of the samples of T_{k,k}
            return target[:: n + 1], weight[:: n + 1] > 0
        cells = range(n)
        pairs = [(h * n + k, h * n + k + 1) for h in cells for k in cells[:-1]]
        pairs += [((h + 1) * n + k, h * n + k) for h in cells[:-1] for k in cells]
        pairs += [(k * n + k, (k + 1) * n + k + 1) for k in cells[:-1]]
        order = np.zeros((max(1, len(pairs)), n * n))
        for row, (smaller, larger) in enumerate(pairs):
            order[row, smaller], order[row, larger] = -1, 1
        share = weight / weight.sum()
        solved = minimize(
            lambda x: (share * (x - target) ** 2).sum(),
            np.full(n * n, target[weight > 0].mean()),
            jac=lambda x: 2 * share * (x - target),
            constraints=LinearConstraint(order, 0, np.inf),
            method="SLSQP",
            options={"maxiter": 1000, "ftol": 1e-15},
        )
        assert solved.success, solved.message
        found = np.diagonal(np.asarray(solved.x).reshape(n, n))
        return found, np.diagonal(weight.reshape(n, n)) > 0

    def forced(self) -> bool:
        """Return True if the guard of (19) is on: F̂_{t-1} > β·F̂_{t-2} and k_{t-1} < n."""
        if len(self.iterations) < 2:
            return False
        before, last = (float(np.mean(one.losses)) for one in self.iterations[-2:])
        return last > BETA * before and len(self.iterations[-1].gradients) < self.n

    def choices(self, server: Vector | None = None) -> set[int]:
        """Return the k that (18) and (19) allow.

        There are several where ratios differ by less than the two solvers do. For a k without samples
        (17) says only that its time is in order, and T̂ is the server's own.
        """
        gains = self.gains()
        if gains is None:
            return {self.n}
        seconds, sampled = self.seconds()
        if server is not None:
            assert seconds[sampled] == pytest.approx(server[sampled], rel=2e-3)
            seconds = np.where(sampled, seconds, server)
        if (gains < 0).all():
            best = {self.n}
        else:
            ratios = gains / seconds
            near = ratios.max() - 5e-3 * abs(ratios.max())
            best = {k for k in range(1, self.n + 1) if ratios[k - 1] >= near}
        if self.forced():
            best = {max(k, len(self.iterations[-1].gradients) + 1) for k in best}
        return best


@dataclass
class Run:
    """What a drive of server and reference saw."""

    chosen: list[int] = field(default_factory=list)
    forced: int = 0
    left_n_as_it_grew: int = 0
    all_negative: int = 0


def drive(n: int, seed: int, updates: int, options: dict[str, object], drift: float = 0.0) -> Run:
    """Push random gradients, losses and times to a server, and compare each k that it chooses.

    All workers begin together. Those that come after the k-th report that they have finished.
    """
    chosen = DynamicOptions.model_validate(options)
    server = DynamicServer(np.zeros(SIZE, np.float32), ETA, n, chosen)
    reference = Reference(
        n,
        chosen.average_over,
        chosen.clip_smoothness,
        blind=chosen.gain == "k",
        naive=chosen.times == "naive",
    )
    for worker in range(n):
        server.joined(worker)
    draw, now, run, loss = np.random.default_rng(seed), 0.0, Run(), 2.0
    for t in range(updates):
        h = len(reference.iterations[-1].gradients) if t else n
        one = Iteration(h, now)
        reference.iterations.append(one)
        seconds = np.sort(0.1 + draw.exponential(size=n))
        loss *= math.exp(drift + draw.normal(0, 0.05))
        direction = draw.normal(size=SIZE) * 0.5
        late: list[tuple[int, float]] = []
        for worker in range(n):
            server.pull(worker, time=now)
        for worker, after in enumerate(seconds.tolist()):
            at = one.began + after
            if server.version > t:
                late.append((worker, at))
                continue
            g = (direction + draw.normal(size=SIZE) * 0.4).astype(np.float32)
            own = loss * math.exp(draw.normal(0, 0.01))
            one.gradients.append(g.astype(float))
            one.losses.append(own)
            one.times.append(at)
            now = at
            server.push(worker, DenseUpdate(g), t, loss=own, time=at)
        estimated = server._times.estimate()
        gains = reference.gains()
        allowed = reference.choices(estimated)
        assert server.wait_for in allowed, (t, server.wait_for, allowed)
        if gains is not None:
            run.forced += reference.forced()
            run.all_negative += bool((gains < 0).all())
            if len(one.gradients) == n and t:
                grew = np.mean(one.losses) > BETA * np.mean(reference.iterations[-2].losses)
                run.left_n_as_it_grew += bool(grew) and server.wait_for < n
        run.chosen.append(server.wait_for)
        for worker, at in late:
            one.times.append(at)
            server.finished(worker, t, time=at)
    return run


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip_smoothness": False, "untried": "lowest"},
        {"gain": "k", "untried": "lowest"},
        {"times": "naive"},
        {"average_over": 1, "untried": "lowest"},
        {"average_over": 100, "untried": "highest"},
    ],
    ids=str,
)
def test_k_is_the_paper_s(options: dict[str, object]) -> None:
    drive(4, 1, 30, options)


def test_the_drives_reach_the_ends_of_the_range() -> None:
    """What the comparison above is worth: k = 1 and k = n, the guard on and off, no gain at all."""
    runs = [
        drive(4, seed, 30, {"untried": "lowest", "gain": gain})
        for seed in (3, 4)
        for gain in ("estimated", "k")
    ]
    runs.append(drive(4, 6, 20, {"untried": "lowest"}, drift=0.1))
    assert {k for run in runs for k in run.chosen} == {1, 2, 3, 4}
    assert sum(run.forced for run in runs) > 10
    assert sum(run.left_n_as_it_grew for run in runs) > 0
    assert sum(run.all_negative for run in runs) > 3


@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_workers(n: int) -> None:
    """Of one worker (10) is never defined, and k is 1 whatever the loss does."""
    run = drive(n, 7, 20, {"untried": "lowest"})
    assert set(run.chosen) <= set(range(1, n + 1))


def test_the_guard_is_off_where_all_were_waited_for() -> None:
    """(19): at k_{t-1} = n a loss that grows forces nothing; below n it forces k_{t-1} + 1."""
    n = 4
    options = DynamicOptions(gain="k", untried="lowest")
    server = DynamicServer(np.zeros(2, np.float32), ETA, n, options)
    for worker in range(n):
        server.joined(worker)
    now, loss, seen = 0.0, 1.0, []
    for version in range(8):
        for worker in range(n):
            server.pull(worker, time=now)
        began, loss = now, loss * 1.02
        # k / T̂(k) is largest at k = 3 of these.
        for worker, after in enumerate((1.0, 1.1, 1.2, 9.0)):
            update = DenseUpdate(np.full(2, 1 + worker, np.float32))
            if server.version == version:
                now = began + after
                server.push(worker, update, version, loss=loss, time=now)
            else:
                server.finished(worker, version, time=began + after)
        seen.append(server.wait_for)
    assert seen == [4, 3, 4, 3, 4, 3, 4, 3]

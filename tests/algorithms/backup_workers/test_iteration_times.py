"""The fit of the times t_{h,k} against (17) of Xu et al., solved another way, and known laws."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import LinearConstraint, minimize

from testbed.algorithms.backup_workers.iteration_times import (
    IterationTimes,
    Untried,
    fitted,
)
from testbed.errors import TestbedError


def order(n: int) -> list[tuple[int, int]]:
    """Return the cells (h, k), as h·n + k, that are in order, of all n² cells."""
    cells = range(n)
    rows = [(h * n + k, h * n + k + 1) for h in cells for k in cells[:-1]]
    columns = [((h + 1) * n + k, h * n + k) for h in cells[:-1] for k in cells]
    return rows + columns + [(k * n + k, (k + 1) * (n + 1)) for k in cells[:-1]]


def reference(
    counts: npt.NDArray[np.int64], means: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Solve (17) for all n² cells by SLSQP."""
    n = len(counts)
    pairs = order(n)
    matrix = np.zeros((len(pairs), n * n))
    for row, (smaller, larger) in enumerate(pairs):
        matrix[row, smaller], matrix[row, larger] = -1, 1
    weight, target = counts.ravel().astype(float), means.ravel()
    solved = minimize(
        lambda x: (weight * (x - target) ** 2).sum(),
        np.full(n * n, means.mean()),
        jac=lambda x: 2 * weight * (x - target),
        constraints=LinearConstraint(matrix, 0, np.inf),
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-13},
    )
    assert solved.success
    return np.asarray(solved.x).reshape(n, n)


@pytest.mark.parametrize("seed", range(12))
def test_the_fit_is_that_of_a_reference(seed: int) -> None:
    """Random cells, of which some rows and cells have no samples: (17) decides those that have some."""
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 5))
    counts = draw.integers(0, 4, (n, n)) * draw.integers(0, 2, (n, 1))
    counts[int(draw.integers(n)), int(draw.integers(n))] = 2
    means = draw.uniform(0.5, 2, (n, n))
    found = {one: fitted(counts, means, one) for one in ("lowest", "middle", "highest")}
    expected = reference(counts, means)
    sampled = np.diagonal(counts) > 0
    for one in found.values():
        assert one[sampled] == pytest.approx(np.diagonal(expected)[sampled], abs=2e-4)
        assert (np.diff(one) > -1e-6).all()
    # Where it does not decide, the reference lies between the bounds.
    known = np.isfinite(found["highest"])
    diagonal = np.diagonal(expected)
    assert (found["lowest"] <= diagonal + 1e-3).all()
    bounded = known & (found["highest"] > found["lowest"] + 1e-9)
    assert (diagonal[bounded] <= found["highest"][bounded] + 1e-3).all()
    assert found["middle"] == pytest.approx((found["lowest"] + found["highest"]) / 2)


@pytest.mark.parametrize("seed", range(6))
def test_the_naive_estimate_is_the_mean_of_the_samples_of_k_by_itself(seed: int) -> None:
    """§3.2. A k without samples has the nearest mean of the cells that (17) has below or above it."""
    draw, n = np.random.default_rng(seed), 4
    samples: dict[tuple[int, int], list[float]] = {}
    lowest, highest = (IterationTimes(n, one, estimator="naive") for one in ("lowest", "highest"))
    rows = draw.choice(n, 2, replace=False) + 1
    for seconds in draw.uniform(0.5, 2, 12):
        h, i = int(draw.choice(rows)), int(draw.integers(1, n + 1))
        samples.setdefault((h, i), []).append(float(seconds))
        for one in (lowest, highest):
            one.add(h, i, float(seconds))
    ordered = np.eye(n * n, dtype=bool)
    for smaller, larger in order(n):
        ordered[smaller, larger] = True
    ordered = np.linalg.matrix_power(ordered.astype(int), n * n) > 0
    means = {(h - 1) * n + i - 1: np.mean(one) for (h, i), one in samples.items()}
    low, high = lowest.estimate(), highest.estimate()
    assert low is not None and high is not None
    for k in range(1, n + 1):
        cell = (k - 1) * (n + 1)
        below = [mean for other, mean in means.items() if ordered[other, cell]]
        above = [mean for other, mean in means.items() if ordered[cell, other]]
        own = samples.get((k, k))
        assert lowest.tried[k - 1] == (own is not None)
        at_least = np.mean(own) if own else max(below, default=0.0)
        assert low[k - 1] == pytest.approx(at_least)
        assert high[k - 1] == pytest.approx(np.mean(own) if own else min(above, default=at_least))


@pytest.mark.parametrize(("untried", "expected"), [("lowest", 1), ("middle", 1.5), ("highest", 2)])
def test_a_k_that_was_not_tried_is_between_its_neighbours(
    untried: Untried, expected: float
) -> None:
    """After iterations with k = n, the times t_{n,i} bound those of smaller k from below only."""
    times = IterationTimes(2, untried)
    assert times.estimate() is None
    times.add(2, 1, 1.0)
    times.add(2, 2, 2.0)
    found = times.estimate()
    assert found is not None
    assert found == pytest.approx([expected, 2], abs=1e-6)


def test_the_last_samples_count_if_so_many_are_kept() -> None:
    """Also in a state that is taken between two of them."""
    times, every = IterationTimes(2, "lowest", kept=3), IterationTimes(2, "lowest")
    for number in range(10):
        for i in (1, 2):
            seconds = float(1 if number < 8 else 5) * i
            times.add(2, i, seconds)
            every.add(2, i, seconds)
        restored = IterationTimes(2, "lowest", kept=3)
        restored.restore(times.state())
        times = restored
    assert times.estimate() == pytest.approx([11 / 3, 22 / 3], abs=1e-6)
    assert every.estimate() == pytest.approx([1.8, 3.6], abs=1e-6)


def test_times_ten_orders_of_magnitude_apart_are_fitted_all_the_same() -> None:
    """The solver does not meet the narrow tolerance for some of them, and then its own."""
    draw = np.random.default_rng(1)
    for _ in range(120):
        n = int(draw.choice([3, 5, 16, 32]))
        counts = draw.integers(0, 4, (n, n)) * draw.integers(0, 2, (n, 1))
        counts[int(draw.integers(n)), int(draw.integers(n))] += 1
        found = fitted(counts, 10 ** draw.uniform(-6, 4, (n, n)), "lowest")
        assert (np.diff(found) >= -1e-3 * found[1:]).all()


def test_what_the_solver_does_not_solve_is_said() -> None:
    """A time that is no number has no least squares."""
    times = IterationTimes(3, "lowest")
    times.add(1, 1, 1.0)
    times.add(1, 2, float("inf"))
    with np.errstate(invalid="ignore"), pytest.raises(TestbedError, match="Clarabel ends with"):
        times.estimate()


@pytest.mark.parametrize("law", ["shifted exponential", "Pareto", "deterministic"])
def test_times_of_known_laws_are_the_means_of_their_order_statistics(law: str) -> None:
    """All n workers begin together (push and interrupt); h changes at random, and does not matter."""
    n, iterations = 8, 400
    draw = np.random.default_rng(7)

    def drawn(size: tuple[int, ...]) -> npt.NDArray[np.float64]:
        match law:
            case "Pareto":
                return 1 + draw.pareto(3, size)
            case "deterministic":
                return np.ones(size)
            case _:
                return 0.3 + 0.7 * draw.exponential(size=size)

    times = IterationTimes(n, "middle")
    for _ in range(iterations):
        h, k = (int(one) for one in draw.integers(1, n + 1, 2))
        for i, seconds in enumerate(np.sort(drawn((n,)))[:k], 1):
            times.add(h, i, float(seconds))
    exact = np.sort(drawn((100_000, n)), axis=1).mean(0)
    found = times.estimate()
    assert found is not None
    assert found == pytest.approx(exact, rel=0.12)

"""How long the server will wait for k gradients: estimated from the times at which gradients came.

Xu et al. (paper 004), §3.2. t_{h,i,t} is the time from the update that made w_t until the i-th gradient
of w_t arrived, where the server had waited for h gradients before it; also gradients that came too late
count, and workers' reports that they have finished one. T̂(k) is the estimate of E[T_{k,k}]: by the
constrained fit (17), or by the paper's naive estimator, the mean of the samples t_{k,k}.
"""

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.checkpoints.stateful import Stateful
from testbed.errors import TestbedError

Times: TypeAlias = npt.NDArray[np.float64]
Untried: TypeAlias = Literal["lowest", "middle", "highest"]
"""The time that is expected of a k that was not tried, between the bounds that others give it."""
Estimator: TypeAlias = Literal["fitted", "naive"]

_TOLERANCES = (1e-14, 1e-8)
"""The solver's tolerances of the objective: the second, its own, where it cannot meet the first. Times
are as exact as the root: with 1e-8 they were 1e-4 off. Of 1,500 random sets of samples whose times were
up to ten orders of magnitude apart, 14 needed the second."""


class IterationTimes(Stateful):
    """The samples t_{h,i}, and the estimate that is made of them."""

    not_saved = frozenset({"_untried", "_kept", "_estimator", "_estimate"})

    def __init__(
        self,
        workers: int,
        untried: Untried,
        kept: int | None = None,
        estimator: Estimator = "fitted",
    ) -> None:
        """Start without samples.

        Args:
            workers: n.
            untried: the estimate for a k without samples; nothing in the paper settles it.
            kept: how many samples of each (h, i) count, the last ones; None: all, as in the paper.
            estimator: the fit of (17), or the naive estimator.
        """
        self._untried = untried
        self._kept = kept
        self._estimator = fitted if estimator == "fitted" else averaged
        # Of h and i, from 1: how many samples there are, and their mean in seconds.
        self._counts = np.zeros((workers, workers), np.int64)
        self._means = np.zeros((workers, workers))
        self._estimate: Times | None = None
        if kept is not None:
            # The samples that count, and how many there have been.
            self._last = np.zeros((workers, workers, kept))
            self._seen = np.zeros((workers, workers), np.int64)

    def add(self, h: int, i: int, seconds: float) -> None:
        """Add a sample t_{h,i}; h and i are between 1 and n."""
        cell = h - 1, i - 1
        self._estimate = None
        if self._kept is not None:
            last = self._last[cell]
            last[self._seen[cell] % self._kept] = seconds
            self._seen[cell] += 1
            self._counts[cell] = min(self._seen[cell], self._kept)
            self._means[cell] = last[: self._counts[cell]].mean()
            return
        self._counts[cell] += 1
        self._means[cell] += (seconds - self._means[cell]) / self._counts[cell]

    def estimate(self) -> Times | None:
        """Return T̂(k) for k = 1 to n, in seconds, shape (n,); None without samples."""
        if self._estimate is None and self._counts.any():
            self._estimate = self._estimator(self._counts, self._means, self._untried)
        return self._estimate

    @property
    def tried(self) -> npt.NDArray[np.bool_]:
        """The k of 1 to n that have samples t_{k,k}, shape (n,)."""
        return np.diagonal(self._counts) > 0


def fitted(counts: npt.NDArray[np.int64], means: Times, untried: Untried) -> Times:
    """Return x_{k,k} of the weighted least squares (17), in seconds, shape (n,).

    Args:
        counts: of samples, by h and k, shape (n, n); not all zero.
        means: of the samples, in seconds; those without samples do not matter.
        untried: which of the solutions is meant where a time without samples has several: the least,
            the largest, or their mean.

    The constraints are x_{h,k} ≤ x_{h,k+1}, x_{h+1,k} ≤ x_{h,k} and x_{k,k} ≤ x_{k+1,k+1}. Only rows h
    with samples and the diagonal are variables: what other cells say of these follows from them.

    Raises:
        TestbedError: the solver finds no solution, as where a time is no number.
    """
    rows = np.flatnonzero(counts.any(axis=1))
    number, smaller, larger = _constraints(rows, len(counts))
    variables = int(number.max()) + 1
    weight, target = np.zeros(variables), np.zeros(variables)
    weight[number[rows].ravel()] = counts[rows].ravel()
    target[number[rows].ravel()] = np.where(counts[rows] > 0, means[rows], 0.0).ravel()
    # In units of the mean time and of all samples: the solver's tolerances are absolute, too.
    scale = float((weight * target).sum() / weight.sum()) or 1.0
    weight /= weight.sum()
    solution = scale * _solved(weight, target / scale, smaller, larger)
    return _completed(solution, weight > 0, smaller, larger, untried)[np.diagonal(number)]


def averaged(counts: npt.NDArray[np.int64], means: Times, untried: Untried) -> Times:
    """Return the means of the samples t_{k,k}, in seconds, shape (n,): the naive estimator.

    It gives no estimate of a k without samples, which cannot be compared with others then. Here such a
    k has one of the bounds that the means of other cells give it by the constraints of (17).

    Args:
        counts, means, untried: as in ``fitted``.
    """
    rows = np.flatnonzero(counts.any(axis=1))
    number, smaller, larger = _constraints(rows, len(counts))
    sampled, found = np.zeros(number.max() + 1, np.bool_), np.zeros(number.max() + 1)
    sampled[number[rows]], found[number[rows]] = counts[rows] > 0, means[rows]
    bounds = _completed(found, sampled, smaller, larger, untried)[np.diagonal(number)]
    return np.where(np.diagonal(counts) > 0, np.diagonal(means), bounds)


def _solved(
    weight: Times,
    target: Times,
    smaller: npt.NDArray[np.int64],
    larger: npt.NDArray[np.int64],
) -> Times:
    """Return the x of least Σ weight·(x − target)² with x[smaller] ≤ x[larger]."""
    from clarabel import DefaultSettings, DefaultSolver, NonnegativeConeT, SolverStatus
    from scipy import sparse

    pairs = len(smaller)
    matrix = sparse.csc_matrix(
        (
            np.concatenate([np.ones(pairs), -np.ones(pairs)]),
            (np.tile(np.arange(pairs), 2), np.concatenate([smaller, larger])),
        ),
        shape=(pairs, len(weight)),
    )
    for tolerance in _TOLERANCES:
        settings = DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = tolerance
        solver = DefaultSolver(
            sparse.diags(weight).tocsc(),
            -weight * target,
            matrix,
            np.zeros(pairs),
            [NonnegativeConeT(pairs)],
            settings,
        )
        found = solver.solve()
        if found.status == SolverStatus.Solved:
            return np.array(found.x)
    raise TestbedError(
        f"dbw cannot estimate how long it will wait for k gradients: Clarabel ends with "
        f"{found.status} after {found.iterations} iterations, for {int((weight > 0).sum())} mean times "
        f"between {target[weight > 0].min():.3g} and {target[weight > 0].max():.3g} of their mean"
    )


def _constraints(
    rows: npt.NDArray[np.int64], n: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the variables' numbers by cell, and the pairs of variables that are in order.

    Returns:
        Numbers, shape (n, n), -1 where a cell is no variable; and of each pair the variable that is at
        most as large as the other, and the other.
    """
    number = np.full((n, n), -1)
    number[rows] = np.arange(len(rows) * n).reshape(len(rows), n)
    missing = [k for k in range(n) if number[k, k] < 0]
    number[missing, missing] = len(rows) * n + np.arange(len(missing))
    ordered: list[tuple[Any, Any]] = [
        (number[rows, :-1], number[rows, 1:]),
        (number[rows[1:]], number[rows[:-1]]),
        (np.diagonal(number)[:-1], np.diagonal(number)[1:]),
    ]
    for k in missing:  # between the row with samples above it, and the one below
        at = int(np.searchsorted(rows, k))
        if at < len(rows):
            ordered.append((number[rows[at], k], number[k, k]))
        if at > 0:
            ordered.append((number[k, k], number[rows[at - 1], k]))
    smaller, larger = (
        np.concatenate([np.ravel(pair[side]) for pair in ordered]) for side in (0, 1)
    )
    return number, smaller, larger


def _completed(
    solution: Times,
    sampled: npt.NDArray[np.bool_],
    smaller: npt.NDArray[np.int64],
    larger: npt.NDArray[np.int64],
    untried: Untried,
) -> Times:
    """Return a solution whose values without samples are the lowest, highest or middle ones."""
    lowest = np.where(sampled, solution, 0.0)
    highest = np.where(sampled, solution, np.inf)
    changed = True
    while changed:
        before = lowest.copy(), highest.copy()
        np.maximum.at(lowest, larger, lowest[smaller])
        np.minimum.at(highest, smaller, highest[larger])
        changed = not all(map(np.array_equal, before, (lowest, highest)))
    highest = np.where(np.isinf(highest), lowest, highest)  # nothing bounds it from above
    return {"lowest": lowest, "middle": (lowest + highest) / 2, "highest": highest}[untried]

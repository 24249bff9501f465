"""The gain of an update: the loss that it is expected to take away, estimated from what arrived.

Xu et al. (paper 004), §3.1. Everything is in double precision: the variance is a difference of two
numbers that are often nearly equal. Where workers push a selection of their gradients, the entries that
they leave out count as 0.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.checkpoints.stateful import Stateful
from testbed.updates import DenseUpdate, Update


def variance(k: int, squares: float, mean_square: float) -> float:
    """Return V̂(g)⁺ of equation (10), the sum of the components' unbiased variances.

    Args:
        k: the number of gradients, at least 2.
        squares: Σ ‖g_j‖², over the gradients.
        mean_square: ‖g‖², of their mean.
    """
    return max(0.0, (squares - k * mean_square) / (k - 1))


def gradient_norm(k: int, mean_square: float, spread: float) -> float:
    """Return the estimate of ‖∇F(w)‖² of equation (11); ``spread`` is V̂(g)⁺."""
    return max(0.0, mean_square - spread / k)


def smoothness(  # noqa: PLR0917 - the symbols of the equation
    rate: float, k: int, norm: float, spread: float, decrease: float, clip: bool
) -> float:
    """Return L̂⁺ of equation (12).

    Args:
        rate: η.
        k, norm, spread: k, ‖∇F‖² and V̂(g)⁺ of the iteration before.
        decrease: F̂ of the iteration before, minus F̂ of this one.
        clip: return 0 in place of a negative number, which no smoothness constant can be.

    Returns:
        NaN where all gradients were zero.
    """
    divisor = rate**2 * (norm + spread / k)
    if divisor == 0:
        return math.nan
    found = 2 * (rate * norm - decrease) / divisor
    return max(0.0, found) if clip else found


@dataclass(frozen=True, slots=True)
class Gain:
    """The three estimates that give an iteration's gain, known at its beginning: (13), (14) and (15).

    Attributes:
        norm: ‖∇F(w_t)‖².
        spread: V(g).
        smoothness: L.
    """

    norm: float
    spread: float
    smoothness: float

    def of(self, k: npt.NDArray[np.int64], rate: float) -> npt.NDArray[np.float64]:
        """Return Ĝ_k of equation (16), for each k; in units of the loss."""
        half = self.smoothness * rate**2 / 2
        return (rate - half) * self.norm - half * self.spread / k


class Gradients(Stateful):
    """The gradients of one iteration, as far as the estimators need them."""

    def __init__(self, size: int) -> None:
        """Start without gradients; each has ``size`` entries."""
        self.count = 0
        self.loss = 0.0
        self._squares = 0.0
        self._sum = np.zeros(size)

    def add(self, update: Update, loss: float) -> None:
        """Add a gradient, and the loss of its mini-batch."""
        self.count += 1
        self.loss += loss
        values = update.values.astype(np.float64)
        self._squares += _square(values)
        if isinstance(update, DenseUpdate):
            self._sum += values
        else:
            self._sum[update.indices] += values

    def clear(self) -> None:
        """Drop all gradients."""
        self.count, self.loss, self._squares = 0, 0.0, 0.0
        self._sum.fill(0)

    @property
    def squares(self) -> float:
        """Σ ‖g_j‖²."""
        return self._squares

    @property
    def mean_square(self) -> float:
        """‖1/k · Σ g_j‖²."""
        return _square(self._sum) / self.count**2


def _square(vector: npt.NDArray[np.float64]) -> float:
    """Return ‖x‖², without BLAS: its sums depend on the number of its threads."""
    return float(np.einsum("i,i->", vector, vector))


class GainEstimator(Stateful):
    """Estimates the gain of the next iteration from those before: the means of the last D estimates.

    The variance of a single gradient is undefined; the last estimate then stands in for it. Without
    any, it counts as 0.
    """

    not_saved = frozenset({"_average_over", "_clip"})

    def __init__(self, average_over: int, clip: bool) -> None:
        """Start without estimates.

        Args:
            average_over: D, in iterations.
            clip: see ``smoothness``.
        """
        self._average_over = average_over
        self._clip = clip
        self._norms: list[float] = []
        self._spreads: list[float] = []
        self._constants: list[float] = []
        # k, η and F̂ of the last iteration.
        self._last: tuple[int, float, float] | None = None

    def observe(self, gradients: Gradients, rate: float) -> None:
        """Take the gradients of an iteration that is over, and the η by which it stepped."""
        k, loss = gradients.count, gradients.loss / gradients.count
        if self._last is not None:
            k_before, rate_before, loss_before = self._last
            constant = smoothness(
                rate_before,
                k_before,
                self._norms[-1],
                self._spreads[-1],
                loss_before - loss,
                self._clip,
            )
            if not math.isnan(constant):
                self._keep(self._constants, constant)
        square = gradients.mean_square
        if k > 1:
            spread = variance(k, gradients.squares, square)
        else:
            spread = self._spreads[-1] if self._spreads else 0.0
        self._keep(self._spreads, spread)
        self._keep(self._norms, gradient_norm(k, square, spread))
        self._last = k, rate, loss

    def _keep(self, estimates: list[float], one: float) -> None:
        estimates.append(one)
        del estimates[: -self._average_over]

    def gain(self) -> Gain | None:
        """Return the estimate for the iteration that begins now; None while there is none of L."""
        if not self._constants:
            return None
        return Gain(*(sum(one) / len(one) for one in (self._norms, self._spreads, self._constants)))

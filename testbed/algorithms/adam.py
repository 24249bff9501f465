"""Adam, Adam-SA and Adam-GA: Adam at the server (paper 002, Algorithms 9, 10 and 11).

m ← β₁·m + (1 − β₁)·g/P; v ← β₂·v + (1 − β₂)·g²; m̂ = m / (1 − β₁^k); v̂ = v / (1 − β₂^k);
θ ← θ − η·m̂ / (√v̂ + ε), where the penalty P is 1, τ or the gap G. It divides the first moment only:
dividing the gradient would change nothing, because both moments would shrink alike. ε stands beside
the root, as in Kingma and Ba; the paper's typesetting puts it under it.

The paper does not say which v enters Algorithm 14 for Adam. Here, as in the group's own port, C is the
mean size of Adam's steps: η_max·(√(mean of u²) + ε), u = m̂ / (√v̂ + ε).
"""

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.penalties import Divisor
from testbed.algorithms.rule import (
    DelayRule,
    GapOptions,
    GapRule,
    Rule,
    RuleOptions,
    RuleServer,
    accumulate,
    zeros,
)

if TYPE_CHECKING:
    from torch import Tensor


class MomentsOptions(RuleOptions):
    """The options of Adam's three versions."""

    beta1: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="β₁, the decay of the first moment; default (null): 0.9.",
    )
    beta2: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="β₂, the decay of the second moment; default (null): 0.999.",
    )
    epsilon: float | None = Field(
        default=None,
        gt=0,
        description="ε, added to the root of the second moment; default (null): 1e-8.",
    )

    @property
    def constants(self) -> tuple[float, float, float]:
        """β₁, β₂ and ε."""
        return (
            0.9 if self.beta1 is None else self.beta1,
            0.999 if self.beta2 is None else self.beta2,
            1e-8 if self.epsilon is None else self.epsilon,
        )


class AdamOptions(MomentsOptions):
    """Adam's parameters."""

    name: Literal["adam"] = "adam"


class AdamSaOptions(MomentsOptions):
    """Adam-SA's parameters."""

    name: Literal["adam-sa"] = "adam-sa"


class AdamGaOptions(GapOptions, MomentsOptions):
    """Adam-GA's parameters; by default the paper's: a gap for each parameter."""

    name: Literal["adam-ga"] = "adam-ga"


class Moments(RuleServer):
    """The server of Algorithms 9 to 11; only the penalty differs."""

    not_saved = frozenset({"_step_vector"})

    def _begin(self, options: MomentsOptions, size: int) -> None:
        self._constants = options.constants
        self._m, self._v = zeros(size), zeros(size)
        self._step_vector = self._torch.empty(size)

    def _step(self, worker: int, g: "Tensor", tau: int, eta: float) -> Divisor:
        beta1, beta2, epsilon = self._constants
        m, v = self._torch.from_numpy(self._m), self._torch.from_numpy(self._v)
        u, k = self._step_vector, self.version + 1
        divisor = self._divisor(worker, tau)
        accumulate(m, beta1, g, divisor, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        # m̂ / (√v̂ + ε) = bias / (1 − β₁^k) · u, u = m / (√v + ε·bias)
        bias = math.sqrt(1 - beta2**k)
        np.sqrt(self._v, out=u.numpy())
        u.add_(epsilon * bias)
        self._torch.div(m, u, out=u)
        self._move(u, eta, bias / (1 - beta1**k))
        return divisor


class Adam(Rule):
    """Adam (Algorithm 9)."""

    options_type, half = AdamOptions, Moments


class AdamSa(DelayRule):
    """Adam-SA (Algorithm 10)."""

    options_type, half = AdamSaOptions, Moments


class AdamGa(GapRule):
    """Adam-GA (Algorithms 11 and 14)."""

    options_type, half = AdamGaOptions, Moments

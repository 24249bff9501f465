"""SA and SA-gradient: Staleness-Aware, which divides by the delay τ (paper 002, Algorithms 3 and 5).

SA (after Zhang et al. 2015) divides the step: v ← γ·v + g; θ ← θ − (η/τ)·v. SA-gradient divides the
gradient: v ← γ·v + g/τ; θ ← θ − η·v, so that a stale gradient stays small also in later steps. τ counts
from 1: with one worker both are Momentum-ASGD. With ``nesterov`` the step is along g + γ·v, or along
g/τ + γ·v.
"""

from typing import TYPE_CHECKING, Literal

from testbed.algorithms.momentum_asgd import Momentum
from testbed.algorithms.penalties import Divisor
from testbed.algorithms.rule import DelayRule, NesterovOptions, Rule

if TYPE_CHECKING:
    from torch import Tensor


class SaOptions(NesterovOptions):
    """SA's parameters."""

    name: Literal["sa"] = "sa"


class SaGradientOptions(NesterovOptions):
    """SA-gradient's parameters."""

    name: Literal["sa-gradient"] = "sa-gradient"


class DividedStep(Momentum):
    """v ← γ·v + g; θ ← θ − (η/τ)·v, or with Nesterov's momentum θ ← θ − (η/τ)·(g + γ·v)."""

    def _step(self, worker: int, g: "Tensor", tau: int, eta: float) -> Divisor:
        super()._step(worker, g, tau, eta / tau)
        return float(tau)


class Sa(Rule):
    """SA (Algorithm 3)."""

    options_type, half = SaOptions, DividedStep


class SaGradient(DelayRule):
    """SA-gradient (Algorithm 5)."""

    options_type, half = SaGradientOptions, Momentum

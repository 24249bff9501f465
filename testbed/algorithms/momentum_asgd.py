"""Momentum-ASGD and NAG-ASGD: every gradient enters with its whole size, however stale it is.

Paper 002, Algorithms 1 and 2. v ← γ·v + g; θ ← θ − η·v, with one v at the server; with γ = 0 this is
the paper's ASGD: θ ← θ − η·g. (This testbed's ``asgd`` is AdaComp's, which divides by max(1, delay).)
Nesterov's momentum is that of torch: θ ← θ − η·(g + γ·v). With one worker both are torch's SGD.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from testbed.algorithms.interface import Conditions
from testbed.algorithms.penalties import Divisor, NoPenalty
from testbed.algorithms.rule import MomentumOptions, Rule, RuleServer, accumulate, zeros
from testbed.algorithms.server_half import ServerHalf
from testbed.updates import FloatVector, IndexVector, Layout, SparseUpdate, Update

if TYPE_CHECKING:
    from torch import Tensor


class MomentumAsgdOptions(MomentumOptions):
    """Momentum-ASGD's parameters; with momentum 0 it is ASGD without division by the staleness."""

    name: Literal["momentum-asgd"] = "momentum-asgd"


class NagAsgdOptions(MomentumOptions):
    """NAG-ASGD's parameters; with momentum 0 it is ASGD without division by the staleness."""

    name: Literal["nag-asgd"] = "nag-asgd"

    @property
    def is_nesterov(self) -> bool:
        return True


class WholeStep(RuleServer):
    """θ ← θ − η·g: a sparse update changes only its own entries."""

    def _apply(self, worker: int, update: Update, delay: int) -> None:
        if not isinstance(update, SparseUpdate):
            super()._apply(worker, update, delay)
            return
        eta = np.float32(self.learning_rate(self.version))
        self.parameters[update.indices] -= eta * update.values
        self._diagnosis = {"delay": delay + 1, "penalty": 1.0}

    def _step(self, worker: int, g: "Tensor", tau: int, eta: float) -> Divisor:
        self._theta.sub_(g, alpha=eta)
        return 1.0

    def _changes(self, update: Update) -> IndexVector | slice:
        return update.indices if isinstance(update, SparseUpdate) else slice(None)


class Momentum(RuleServer):
    """v ← γ·v + g / penalty; θ ← θ − η·v, or with Nesterov's momentum θ ← θ − η·(g / penalty + γ·v).

    With both kinds of momentum the penalty is given v itself (``Penalty.moved``).
    """

    def _begin(self, options: Any, size: int) -> None:
        self._gamma, self._nesterov = options.gamma, options.is_nesterov
        self._v = zeros(size)

    def _step(self, worker: int, g: "Tensor", tau: int, eta: float) -> Divisor:
        v = self._torch.from_numpy(self._v)
        divisor = self._divisor(worker, tau)
        accumulate(v, self._gamma, g, divisor)
        if not self._nesterov:
            self._move(v, eta)
            return divisor
        if isinstance(divisor, float):
            self._theta.sub_(g, alpha=eta / divisor)
        else:
            self._theta.addcdiv_(g, divisor, value=-eta)
        self._theta.sub_(v, alpha=eta * self._gamma)
        self.penalty.moved(v, 1)
        return divisor


class MomentumAsgd(Rule):
    """Momentum-ASGD (Algorithms 1 and 2)."""

    options_type, half = MomentumAsgdOptions, Momentum

    @classmethod
    def server(
        cls, options: Any, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        half = WholeStep if options.gamma == 0 else cls.half
        return half(parameters, layout, conditions, options, NoPenalty())


class NagAsgd(Rule):
    """NAG-ASGD: Nesterov's momentum at the server."""

    options_type, half = NagAsgdOptions, Momentum

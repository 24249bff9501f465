"""DANA, DANA-SA and DANA-GA: a momentum for each worker, and a look-ahead (Algorithms 6, 7 and 8).

Hakimi et al. (2019), as in paper 002. Worker i's gradient enters its own momentum, v^i ← γ·v^i + g;
θ ← θ − η·v^i; and a worker is sent an estimate of where the others will have moved θ by the time it
pushes: θ̂ = θ − η·γ·Σ_j v^j, with the η of when it is sent. DANA-SA divides g by τ, DANA-GA by the gap
against the θ̂ that it sent.

The sum is kept up to date, by (new v^i − old v^i), and costs the same however many workers there are.
A worker that is lost or suspected takes its momentum out of the sum: it will not move θ any more. If
it comes back it begins with v^i = 0. An evaluation sees θ, never an estimate.

With one worker and a constant η, θ̂ goes the way of Nesterov's momentum: v ← γ·v + g;
θ̂ ← θ̂ − η·(g + γ·v).
"""

import math
from typing import TYPE_CHECKING, Literal

from testbed.algorithms.penalties import Divisor
from testbed.algorithms.rule import (
    DelayRule,
    GapOptions,
    GapRule,
    MomentumOptions,
    Rule,
    RuleOptions,
    RuleServer,
    accumulate,
    zeros,
)
from testbed.updates import FloatVector

if TYPE_CHECKING:
    from torch import Tensor


class DanaOptions(MomentumOptions):
    """DANA's parameters; with momentum 0 it is ASGD without division by the staleness."""

    name: Literal["dana"] = "dana"


class DanaSaOptions(MomentumOptions):
    """DANA-SA's parameters."""

    name: Literal["dana-sa"] = "dana-sa"


class DanaGaOptions(GapOptions, MomentumOptions):
    """DANA-GA's parameters; by default the paper's: a gap for each parameter."""

    name: Literal["dana-ga"] = "dana-ga"


class LookAhead(RuleServer):
    """The server of Algorithms 6 to 8; only the penalty differs."""

    not_saved = frozenset({"_estimate"})

    def _begin(self, options: MomentumOptions, size: int) -> None:
        self._gamma = options.gamma
        self._v: dict[int, FloatVector] = {}
        self._sum = zeros(size)
        self._estimate = self._torch.empty(len(self.parameters))

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        size, eta = len(self._theta), self.learning_rate(self.version)
        total = self._torch.from_numpy(self._sum)
        self._torch.sub(self._theta, total, alpha=eta * self._gamma, out=self._estimate[:size])
        self._estimate[size:] = self._buffers
        # The sum may change between two versions, where a worker is forgotten.
        sent = self._estimate[:size].numpy()
        self.penalty.sent(worker, self.version, sent, shared=False)
        return self.version

    def outgoing(self, worker: int) -> FloatVector:
        estimate: FloatVector = self._estimate.numpy()
        return estimate

    def _step(self, worker: int, g: "Tensor", tau: int, eta: float) -> Divisor:
        if worker not in self._v:
            self._v[worker] = zeros(len(self._theta))
        v, total = self._torch.from_numpy(self._v[worker]), self._torch.from_numpy(self._sum)
        divisor = self._divisor(worker, tau)
        total.sub_(v)
        accumulate(v, self._gamma, g, divisor)
        total.add_(v)
        self._move(v, eta)
        return divisor

    def forget(self, worker: int) -> None:
        super().forget(worker)
        v = self._v.pop(worker, None)
        if v is not None:
            self._sum -= v
        if not self._v:
            self._sum.fill(0)  # without what was rounded


class Dana(Rule):
    """DANA (Algorithm 6)."""

    options_type, half = DanaOptions, LookAhead

    @classmethod
    def vectors_per_worker(cls, options: RuleOptions) -> int:
        return 1  # v^i


class DanaSa(DelayRule):
    """DANA-SA (Algorithm 7)."""

    options_type, half = DanaSaOptions, LookAhead

    @classmethod
    def vectors_per_worker(cls, options: RuleOptions) -> int:
        return 1  # v^i


class DanaGa(GapRule):
    """DANA-GA (Algorithm 8)."""

    options_type, half = DanaGaOptions, LookAhead

    @classmethod
    def vectors_per_worker(cls, options: RuleOptions) -> int:
        return 1 + options.versions_sent  # v^i, and θ^i of each

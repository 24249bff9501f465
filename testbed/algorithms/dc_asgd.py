"""DC-ASGD: ASGD that compensates a gradient for how far θ moved (Zheng et al. 2017, constant λ).

The gradient at θ is estimated from g, that at θ^i, by the first term of a Taylor series whose Hessian
is approximated by λ·diag(g·g):

    ĝ = g + λ·g·g·(θ − θ^i);   v ← γ·v + ĝ;   θ ← θ − η·v,

element-wise, θ^i what worker i was last sent. A baseline of paper 002's group, whose code has λ = 2 and
this momentum; γ = 0 is the rule of Zheng et al. With one worker it is Momentum-ASGD.
"""

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from testbed.algorithms.momentum_asgd import Momentum
from testbed.algorithms.outstanding import Outstanding
from testbed.algorithms.penalties import Divisor
from testbed.algorithms.rule import MomentumOptions, Rule, RuleOptions, accumulate
from testbed.updates import FloatVector

if TYPE_CHECKING:
    from torch import Tensor

LAMBDA = 2.0
"""λ, as in the group's code."""


class DcAsgdOptions(MomentumOptions):
    """DC-ASGD's parameters."""

    name: Literal["dc-asgd"] = "dc-asgd"
    compensation: float | None = Field(
        default=None,
        ge=0,
        le=1e6,
        description="λ, the share of the gradient's square that stands for the Hessian; 0: no "
        "compensation. Default (null): 2.",
    )


class Compensated(Momentum):
    """The server: Momentum-ASGD with ĝ in place of g."""

    not_saved = frozenset({"_compensated"})

    def _begin(self, options: DcAsgdOptions, size: int) -> None:
        super()._begin(options, size)
        self._lambda = LAMBDA if options.compensation is None else options.compensation
        self._theta_i: Outstanding[FloatVector] = Outstanding(overlaps=options.overlaps)
        self._compensated = self._torch.empty(size)

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        self._theta_i.hold(worker, self.version, self.parameters[: len(self._theta)])
        return self.version

    def forget(self, worker: int) -> None:
        self._theta_i.release(worker)

    def _step(self, worker: int, g: "Tensor", tau: int, eta: float) -> Divisor:
        theta_i = self._torch.from_numpy(self._theta_i.at(worker, self.version + 1 - tau))
        v = self._torch.from_numpy(self._v)
        moved = self._torch.sub(self._theta, theta_i, out=self._compensated).mul_(g)
        accumulate(v, self._gamma, g, 1.0)
        v.addcmul_(g, moved, value=self._lambda)
        self._theta.sub_(v, alpha=eta)
        self._theta_i.pushed(worker)
        return 1.0


class DcAsgd(Rule):
    """DC-ASGD with a constant λ."""

    options_type, half = DcAsgdOptions, Compensated

    @classmethod
    def vectors_per_worker(cls, options: RuleOptions) -> int:
        return options.versions_sent  # θ^i of each

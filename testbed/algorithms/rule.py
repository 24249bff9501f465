"""The base of paper 002's rules: their options, dense gradients, penalties and diagnostics.

A rule turns each push into an update at once and changes every parameter with it, because momentum
moves also those whose gradient was not sent: an entry that a sparse update does not contain has the
gradient 0. Compression, error feedback and encodings are the workers', and compose with every rule.

Shared buffers (``testbed.learning.buffers``) are no parameters, and no momentum or penalty is theirs: a
rule moves them as ASGD does, by −α / max(1, delay) times their gradient.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from testbed.algorithms.compression import Scope, SelectionOptions, compressing_worker
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.gap import DECAY, Granularity, gap
from testbed.algorithms.interface import AsynchronousOptions, Conditions, Options, ServedAlgorithm
from testbed.algorithms.penalties import DelayPenalty, Divisor, NoPenalty, Penalty
from testbed.algorithms.server_half import AsynchronousServer, ServerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.updates import DenseUpdate, FloatVector, IndexVector, Layout, Update

if TYPE_CHECKING:
    from torch import Tensor

MOMENTUM = 0.9
"""γ, as in the paper's experiments."""


class RuleOptions(SelectionOptions, AsynchronousOptions):
    """The options of every rule: what its workers push."""

    scope: Scope = Field(
        default="tensor",
        description="Where the largest are sought, if there is a ratio: in each weight matrix and bias "
        "vector (AdaComp's selection) or over the whole model.",
    )


class MomentumOptions(RuleOptions):
    """The options of a rule with momentum."""

    momentum: float | None = Field(
        default=None,
        gt=-1,
        lt=1,
        description="γ, the server's momentum, without dampening; 0: none. Default (null): 0.9.",
    )

    @property
    def gamma(self) -> float:
        """γ."""
        return MOMENTUM if self.momentum is None else self.momentum

    @property
    def is_nesterov(self) -> bool:
        """True if the momentum is Nesterov's."""
        return False


class NesterovOptions(MomentumOptions):
    """The options of a rule whose momentum may be Nesterov's."""

    nesterov: bool = Field(
        default=False,
        description="Step along g/P + γ·v in place of v, as torch's SGD with nesterov=True. The "
        "paper's experiments have it (§6), its algorithms do not. Default: false.",
    )

    @property
    def is_nesterov(self) -> bool:
        return self.nesterov


class GapOptions(RuleOptions):
    """The options of a rule that measures the gap; by default the paper's: one for each parameter."""

    gap: Granularity = Field(
        default="parameter",
        description="What has a gap of its own: each parameter (default), each layer, or the model.",
    )
    gap_decay: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="β, the decay of the mean square by which the gap is measured; default (null): "
        "0.999.",
    )


class Rule(ServedAlgorithm):
    """An asynchronous rule of the server's half; its workers push whole gradients, or parts of them."""

    half: ClassVar[type["RuleServer"]]
    scheduled = True
    diagnostics: ClassVar[tuple[Diagnostic, ...]] = (
        Diagnostic(
            "delay",
            "Updates since the worker was last sent parameters, this one included: counts from 1.",
        ),
        Diagnostic("penalty", "Mean divisor of the entries that the worker pushed; 1 is none."),
    )

    @classmethod
    def averages(cls, options: RuleOptions) -> bool:
        return options.pushes_whole_gradients

    @staticmethod
    def worker(options: RuleOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return compressing_worker(options, layout, options.scope)

    @classmethod
    def server(
        cls, options: Any, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        penalty = cls._penalty(options, layout, conditions)
        return cls.half(parameters, layout, conditions, options, penalty)

    @classmethod
    def _penalty(cls, options: Any, layout: Layout, conditions: Conditions) -> Penalty:
        """Make what a server's half divides gradients by."""
        return NoPenalty()


class DelayRule(Rule):
    """A rule that divides each gradient by its delay."""

    @classmethod
    def _penalty(cls, options: Any, layout: Layout, conditions: Conditions) -> Penalty:
        return DelayPenalty()


class GapRule(Rule):
    """A rule that measures the gap, and reports it."""

    diagnostics = (
        *Rule.diagnostics,
        Diagnostic("gap", "Mean of G over all parameters; 1 where nothing moved meanwhile."),
    )

    @classmethod
    def vectors_per_worker(cls, options: RuleOptions) -> int:
        return options.versions_sent  # θ^i of each

    @classmethod
    def _penalty(cls, options: GapOptions, layout: Layout, conditions: Conditions) -> Penalty:
        beta = DECAY if options.gap_decay is None else options.gap_decay
        return gap(layout, options.gap, conditions.learning_rate, beta, overlaps=options.overlaps)


class RuleServer(AsynchronousServer):
    """A server's half that applies a rule to dense gradients, which it divides by a penalty."""

    # Tensors share the memory of arrays, or are written before they are read.
    not_saved = frozenset({"learning_rate", "_theta", "_buffers", "_scattered", "_torch"})

    def __init__(
        self,
        parameters: FloatVector,
        layout: Layout,
        conditions: Conditions,
        options: Options,
        penalty: Penalty,
    ) -> None:
        # Imported here: the command line reads every algorithm's options, and torch takes seconds.
        import torch

        super().__init__(parameters)
        self._torch = torch
        self.learning_rate = conditions.rate
        self.penalty = penalty
        whole, size = torch.from_numpy(parameters), layout.parameters
        self._theta, self._buffers = whole[:size], whole[size:]
        self._scattered = torch.empty(len(parameters))
        self._diagnosis: dict[str, float] = {}
        self._begin(options, size)

    def _begin(self, options: Any, size: int) -> None:
        """Take what a subclass needs of its options, and make its vectors of ``size`` parameters."""

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        theta = self.parameters[: len(self._theta)]
        self.penalty.sent(worker, self.version, theta, shared=True)
        return self.version

    def forget(self, worker: int) -> None:
        self.penalty.forget(worker)

    def diagnose(self) -> Mapping[str, float]:
        return self._diagnosis

    def _apply(self, worker: int, update: Update, delay: int) -> None:
        g, size, tau = self._dense(update), len(self._theta), delay + 1
        eta = self.learning_rate(self.version)
        divisor = self._step(worker, g[:size], tau, eta)
        if len(self._buffers):
            self._buffers.sub_(g[size:], alpha=eta / max(1, delay))
        self._diagnosis = {"delay": tau} | _means(divisor, update)

    @abstractmethod
    def _step(self, worker: int, g: "Tensor", tau: int, eta: float) -> Divisor:
        """Change the parameters by a gradient; return what it was divided by.

        Args:
            g: float32, (parameters,); not to be changed.
            tau: the delay, from 1.
            eta: the learning rate of this update.
        """

    def _divisor(self, worker: int, tau: int) -> Divisor:
        """Return what a gradient is to be divided by; call it before θ changes."""
        return self.penalty.divisor(worker, self.version, tau, self._theta)

    def _move(self, v: "Tensor", eta: float, scale: float = 1) -> None:
        """Do θ ← θ − η·scale·v."""
        self._theta.sub_(v, alpha=eta * scale)
        self.penalty.moved(v, scale)

    def _dense(self, update: Update) -> "Tensor":
        if isinstance(update, DenseUpdate):
            return self._torch.from_numpy(update.values)
        self._scattered.zero_().numpy()[update.indices] = update.values
        return self._scattered

    def _changes(self, update: Update) -> IndexVector | slice:
        return slice(None)


def accumulate(v: "Tensor", factor: float, g: "Tensor", divisor: Divisor, share: float = 1) -> None:
    """Do v ← factor·v + share·g / divisor, in place, in few passes over the vectors."""
    import torch

    if not isinstance(divisor, float):
        v.mul_(factor).addcdiv_(g, divisor, value=share)
    elif divisor == share:
        torch.add(g, v, alpha=factor, out=v)  # one pass
    else:
        v.mul_(factor).add_(g, alpha=share / divisor)


def zeros(size: int) -> FloatVector:
    """Return a vector of zeros, which is part of a half's state."""
    return np.zeros(size, np.float32)


def _means(divisor: Divisor, update: Update) -> dict[str, float]:
    if isinstance(divisor, float):
        return {"penalty": divisor}
    gap = float(divisor.mean())
    if isinstance(update, DenseUpdate):
        return {"penalty": gap, "gap": gap}
    # A server of several may get none of the entries.
    pushed = divisor.numpy()[update.indices] if len(update.indices) else np.array([math.nan])
    return {"penalty": float(pushed.mean()), "gap": gap}

"""The penalties of stale gradients: what a server divides a gradient by before it uses it.

Zhang et al. (2015, "Staleness-aware async-SGD") divide by the delay; Gap-Aware (paper 002) divides by
the gap (``testbed.algorithms.gap``). The delay counts from 1 here, as in the paper: τ = delay + 1, and
the only worker of a run has τ = 1. (AdaComp's ASGD divides by max(1, delay): an update of delay 1 is
whole there, and halved here.)
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias

from testbed.checkpoints.stateful import Stateful
from testbed.updates import FloatVector

if (
    TYPE_CHECKING
):  # torch takes seconds to import, and the command line reads every algorithm's options
    from torch import Tensor

Divisor: TypeAlias = "float | Tensor"
"""A number for all entries of a gradient, or one for each: float32, (parameters,)."""


class Penalty(Stateful, ABC):
    """A rule for the divisor of each gradient."""

    def sent(self, worker: int, version: int, theta: FloatVector, *, shared: bool) -> None:
        """Hold the parameters that a worker is sent; ``shared`` as in ``Outstanding.hold``."""

    @abstractmethod
    def divisor(self, worker: int, version: int, tau: int, theta: "Tensor") -> Divisor:
        """Return what a worker's gradient is divided by; a tensor is used up before the next call.

        Args:
            version: the one before this update.
            tau: the delay, from 1.
            theta: the parameters before this update, float32, (parameters,).
        """

    def moved(self, v: "Tensor", scale: float) -> None:
        """Keep the vector scale·v of an update θ ← θ − η·scale·v; v is float32, (parameters,)."""

    def forget(self, worker: int) -> None:
        """Drop what is kept for a worker."""


class NoPenalty(Penalty):
    """No penalty: every gradient is whole."""

    def divisor(self, worker: int, version: int, tau: int, theta: "Tensor") -> Divisor:
        return 1.0


class DelayPenalty(Penalty):
    """Staleness-Aware: every gradient is divided by its delay τ."""

    def divisor(self, worker: int, version: int, tau: int, theta: "Tensor") -> Divisor:
        return float(tau)

"""Error feedback: keep the part of a gradient that was not sent, and add it to the next gradient.

Seide et al. (2014) add the error of a quantised gradient to the next gradient; Stich et al. (2018,
"Sparsified SGD with memory", Algorithm 1) and Karimireddy et al. (2019, "Error feedback fixes
SignSGD") show that SGD then converges as if nothing were compressed. With the residual v, the
gradient g and the selection Q, one push is

    v ← β·v + g;   push Q(v);   v ← v − Q(v) as the server will read it.

These papers have β = 1. β < 1 is the memory decay of GRACE's survey (Xu et al. 2021; its
φ(v, g) = β·v + γ·g with γ = 1) and of ECQ-SGD (Wu et al. 2018). It limits the age of a residual: where
one worker of hundreds pushes rarely, and the server divides by a staleness that does not cover
gradients from before the last pull, a residual that waited for dozens of pushes points in an outdated
direction.

Momentum correction is that of Lin et al. (2018, "Deep gradient compression", DGC, §3.2 and §3.3):
momentum is accumulated before the residual, and both are cleared where an entry was sent ("momentum
factor masking"):

    u ← m·u + g;   v ← β·v + u;   push Q(v);   u, v ← 0 where sent.

Memory: one float32 vector of |Θ| per worker (the CNN's: 0.85 MB), two with momentum. No other vector
of that length is allocated, however many pushes there are.
"""

import numpy as np

from testbed.algorithms.worker_half import WorkerHalf
from testbed.updates import DenseUpdate, FloatVector, IndexVector, Layout, SparseUpdate, Update


class ErrorFeedback(WorkerHalf):
    """A worker half that gives the residual, in place of the gradient, to another half."""

    def __init__(
        self, selection: WorkerHalf, layout: Layout, momentum: float = 0.0, decay: float = 1.0
    ) -> None:
        """Start with a residual of 0.

        Args:
            selection: returns some of the given entries with unchanged values.
            layout: the model's.
            momentum: m, from 0 (plain error feedback, without momentum) to below 1.
            decay: β, from 0 (no residual survives a push) to 1 (all of it does).
        """
        self._selection = selection
        self._m = np.float32(momentum)
        self._beta = np.float32(decay)
        self._residual = np.zeros(layout.total, np.float32)
        self._velocity = np.zeros(layout.total, np.float32) if momentum else None

    def compress(self, gradient: FloatVector) -> Update:
        u, v = self._velocity, self._residual
        if self._beta != 1:
            v *= self._beta
        if u is None:
            v += gradient
        else:
            u *= self._m
            u += gradient
            v += u
        update = self._selection.compress(v)
        if isinstance(update, DenseUpdate):
            update = DenseUpdate(update.values.copy())  # it may share the residual's memory
        # ``lost`` adds back what the encoding rounds away.
        sent = _entries(update)
        v[sent] = 0
        if u is not None:
            u[sent] = 0
        return update

    def lost(self, update: Update, received: Update) -> None:
        with np.errstate(invalid="ignore"):
            error = update.values - received.values
        # A NaN or an infinity that stayed in the residual would be pushed for ever.
        error[~np.isfinite(error)] = 0
        self._residual[_entries(update)] += error


def _entries(update: Update) -> IndexVector | slice:
    return update.indices if isinstance(update, SparseUpdate) else slice(None)

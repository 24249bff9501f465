"""Error feedback: what was not sent is kept and added to the next gradient.

Seide et al. (2014) carry the error of one quantised gradient over to the next one; Stich et al.
(2018, "Sparsified SGD with memory", Algorithm 1) and Karimireddy et al. (2019, "Error feedback fixes
SignSGD") show that SGD then converges as if nothing were compressed. With the residual v, the
gradient g and Q the selection, one push is

    v ← β·v + g;   push Q(v);   v ← v − what the server will read of Q(v).

β = 1 is theirs. β < 1 is the memory decay of GRACE's survey (Xu et al. 2021; its φ(v, g) = β·v + γ·g
with γ = 1) and of ECQ-SGD (Wu et al. 2018), and bounds how old a residual can become: where a worker
of hundreds pushes rarely and the server divides by a staleness that knows nothing of gradients from
before the last pull, what waited for dozens of pushes points elsewhere by then.

Momentum correction is that of Lin et al. (2018, "Deep gradient compression", DGC, §3.2 and §3.3):
momentum is gathered before the residual, and both are cleared where an entry was sent ("momentum
factor masking"):

    u ← m·u + g;   v ← β·v + u;   push Q(v);   u, v ← 0 where sent.

Memory: one float32 vector of |Θ| per worker (the CNN's: 0.85 MB), two with momentum. No other vector
of that length is made, whatever the number of pushes.
"""

import numpy as np

from testbed.algorithms.interface import WorkerHalf
from testbed.updates import DenseUpdate, FloatVector, IndexVector, Layout, SparseUpdate, Update


class ErrorFeedback(WorkerHalf):
    """A worker half that gives another one, the selection, the residual in place of the gradient."""

    made_anew = frozenset({"_selection"})

    def __init__(
        self, selection: WorkerHalf, layout: Layout, momentum: float = 0.0, decay: float = 1.0
    ) -> None:
        """Begin with nothing kept.

        Args:
            selection: sends some of the entries it is given, values unchanged; memoryless.
            layout: of the model.
            momentum: m, from 0 (plain error feedback, no momentum is kept) to below 1.
            decay: β, from 0 (nothing is kept from push to push) to 1 (all of it).
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
            update = DenseUpdate(update.values.copy())  # it may be the residual itself
        # What the encoding rounds away comes back by ``lost``.
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

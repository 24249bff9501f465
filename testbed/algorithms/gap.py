"""The gap (Barkai et al. 2020, Gap-Aware, paper 002, §5 and Algorithm 14): how far Θ moved meanwhile.

G = |θ_k − θ^i| / C + 1, where θ^i is what was last sent to worker i, and C is how far one update moves
the parameters on average:

    m ← β·m + (1 − β)·v²;   m̂ = m / (1 − β^k);   C = η_max·(√m̂ + ε),   β = 0.999, ε = 10⁻⁸.

Algorithm 14 takes v after the new gradient has entered it whole, Algorithm 4's v contains g/G, and G
needs C: to the letter there would be two momenta. As in the group's own port, v is Algorithm 4's
*before* the new gradient enters it, that of the last update; so k counts the updates before this one,
whose v are in m. The first gradient meets m = 0, and a distance of 0: G = 1. Of DANA-GA, whose workers
have a v each, one m takes that of the last update, whichever worker's it was. η_max is the run's
learning rate before any schedule.

There are three versions (§5.3): a number for each parameter (the paper's choice), for each layer, and
for the model, where |·| and √v² become the norms of the layer or model. A server of several does this
for its slice alone, with the norms of the layers' parts that it holds: it knows no other slice.

US patent 11631035 bears the method's name; that is a fact for whoever distributes or uses it.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from testbed.algorithms.outstanding import Outstanding
from testbed.algorithms.penalties import Divisor, Penalty
from testbed.updates import FloatVector, Layout

if TYPE_CHECKING:
    from torch import Tensor

Granularity: TypeAlias = Literal["parameter", "layer", "model"]

DECAY = 0.999
"""β, as in the paper's experiments."""
EPSILON = 1e-8


def gap(
    layout: Layout,
    granularity: Granularity,
    eta_max: float,
    decay: float,
    *,
    overlaps: bool = False,
) -> "Gap":
    """Make the penalty of one of the three versions.

    Args:
        layout: of the server's slice; shared buffers are no part of any gap.
        eta_max: η_max.
        decay: β, from 0 (only the last update counts) to below 1.
        overlaps: True if workers compute while their pushes are on their way.
    """
    if granularity == "parameter":
        return ParameterGap(layout.parameters, eta_max, decay, overlaps=overlaps)
    parts = [slice(0, layout.parameters)] if granularity == "model" else layers(layout)
    return GroupGap(layout.parameters, eta_max, decay, parts, overlaps=overlaps)


def layers(layout: Layout) -> Sequence[slice]:
    """Return the parts of the flat vector that are layers: tensors whose names agree up to the dot."""
    tensors = [
        (name, one)
        for name, one in zip(layout.names, layout.slices, strict=True)
        if one.start < layout.parameters
    ]
    found = []
    for _, group in groupby(tensors, lambda tensor: tensor[0].rpartition(".")[0] or tensor[0]):
        parts = [one for _, one in group]
        found.append(slice(parts[0].start, parts[-1].stop))
    return found


class Gap(Penalty):
    """The gap as a divisor; it keeps θ^i for each outstanding worker."""

    not_saved = frozenset({"_divisor"})

    def __init__(self, size: int, eta_max: float, decay: float, *, overlaps: bool) -> None:
        import torch

        self._eta_max, self._decay = eta_max, decay
        self._theta_i: Outstanding[FloatVector] = Outstanding(overlaps=overlaps)
        self._divisor = torch.ones(size)

    def sent(self, worker: int, version: int, theta: FloatVector, *, shared: bool) -> None:
        self._theta_i.hold(worker, version, theta, shared=shared)

    def divisor(self, worker: int, version: int, tau: int, theta: "Tensor") -> Divisor:
        import torch

        theta_i = torch.from_numpy(self._theta_i.at(worker, version + 1 - tau))
        # Before the first update there is no v, and nothing moved: G is 1 whatever C is.
        self._measure(theta, theta_i, 1 - self._decay ** max(version, 1))
        self._theta_i.pushed(worker)
        return self._divisor

    @abstractmethod
    def _measure(self, theta: "Tensor", theta_i: "Tensor", bias: float) -> None:
        """Write G to ``_divisor``; ``bias`` is 1 − β^k."""

    def forget(self, worker: int) -> None:
        self._theta_i.release(worker)


class ParameterGap(Gap):
    """A gap for each parameter (13)."""

    not_saved = frozenset({"_root", "_one"})

    def __init__(self, size: int, eta_max: float, decay: float, *, overlaps: bool) -> None:
        import torch

        super().__init__(size, eta_max, decay, overlaps=overlaps)
        self._m = np.zeros(size, np.float32)
        self._root, self._one = torch.empty(size), torch.ones(1)

    def moved(self, v: "Tensor", scale: float) -> None:
        import torch

        beta = self._decay
        torch.from_numpy(self._m).mul_(beta).addcmul_(v, v, value=(1 - beta) * scale**2)

    def _measure(self, theta: "Tensor", theta_i: "Tensor", bias: float) -> None:
        import torch

        root = self._root
        # C = (η_max / √bias)·(√m + ε·√bias). torch's root, MKL's, takes a quarter longer than numpy's,
        # and need not be rounded correctly.
        np.sqrt(self._m, out=root.numpy())
        root.add_(EPSILON * math.sqrt(bias))
        distance = torch.sub(theta, theta_i, out=self._divisor).abs_()
        scale = math.sqrt(bias) / self._eta_max
        torch.addcdiv(self._one, distance, root, value=scale, out=self._divisor)


class GroupGap(Gap):
    """A gap for each of several parts of the flat vector (12), or for all of it (Definition 1)."""

    not_saved = frozenset({"_parts", "_squares"})

    def __init__(
        self,
        size: int,
        eta_max: float,
        decay: float,
        parts: Sequence[slice],
        *,
        overlaps: bool,
    ) -> None:
        import torch

        super().__init__(size, eta_max, decay, overlaps=overlaps)
        self._parts = list(parts)
        self._m = np.zeros(len(self._parts))
        # A dot product of torch's BLAS may depend on the alignment of the memory; sums do not.
        self._squares = torch.empty(size)

    def moved(self, v: "Tensor", scale: float) -> None:
        import torch

        share = (1 - self._decay) * scale**2
        self._m *= self._decay
        torch.mul(v, v, out=self._squares)
        for p, part in enumerate(self._parts):
            self._m[p] += share * float(self._squares[part].sum())

    def _measure(self, theta: "Tensor", theta_i: "Tensor", bias: float) -> None:
        import torch

        torch.sub(theta, theta_i, out=self._squares).square_()
        for part, m in zip(self._parts, self._m.tolist(), strict=True):
            c = self._eta_max * (math.sqrt(m / bias) + EPSILON)
            distance = math.sqrt(float(self._squares[part].sum()))
            self._divisor[part].fill_(distance / c + 1)

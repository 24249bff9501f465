"""Ako: partial gradient exchange between peers (paper 003, Algorithm 1 and §3).

There is no parameter server; every peer j owns a model w. It divides the gradient that it has
accumulated over its last p rounds into p partitions, ranges of the flat vector that may cut tensors,
and sends each other peer one of them in each round:

    line 3      while c > min_i s_i + p + τ: wait
    line 5      w ← w − η·g, at once
    line 6      g̃ ← g̃ + g − g_{t−p}, where g_{t−p} is the gradient of p rounds ago
    lines 7-10  send partition k = (i + t) mod p of g̃ to peer i
    line 11     c ← c + 1
    lines 13-14 for each partition that arrives, in its order: w ← w − η·g', s_i ← s_i + 1

Line 9 has k = i mod p, which would send a receiver the same partition for ever; the text (§3.1) and
Figure 6 need the rotation by t, the sender's round. With it, any p rounds in sequence bring each
receiver every coordinate of every gradient exactly once. The paper's g is the negative gradient.

p is an option, or by equation (3) p = ⌈γ·m·(n − 1)/B⌉. A peer that comes later is sent only gradients
of rounds from then on: each of these exactly once, and nothing of any before.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.all_to_all import ExchangingPeer
from testbed.algorithms.compression import LargestEntries, Ratio
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.interface import Conditions, PeerAlgorithm, PeerOptions
from testbed.algorithms.learning_rate import LearningRate
from testbed.algorithms.peer_half import Parcel, PeerHalf
from testbed.errors import SpecError
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update


class AkoOptions(PeerOptions):
    """The options of Ako."""

    name: Literal["ako"] = "ako"
    partitions: int | None = Field(
        default=None,
        ge=1,
        description="p, the number of parts of the gradient, of which each other peer is sent one in a "
        "round; 1 is All-to-All. Default (null): by equation (3), ⌈γ·m·(n − 1)/B⌉, from the gradients "
        "per second, the model's bytes, the number of peers and the bytes per second of the uplink, "
        "which each peer measures in its first round under the wall clock.",
    )
    staleness_bound: int | None = Field(
        default=None,
        ge=0,
        description="τ: a peer computes only while it has computed at most p + τ gradients more than "
        "partitions have arrived from any other peer. Default (null): the number of peers, as the "
        "paper increases τ with it.",
    )
    accumulation: bool = Field(
        default=True,
        description="Send the sum of the gradients of the last p rounds, so that all of each gradient "
        "arrives; without it only the newest gradient's partition is sent, and the others of it never "
        "(the paper's Figure 13).",
    )
    ratio: Ratio | None = Field(
        default=None,
        description="Compression ratio c: fraction of a partition's entries that is sent, the largest "
        "in magnitude of each tensor in it, as AdaComp selects them; the others are forgotten. Not in "
        "the paper. Default (null): all.",
    )


def partitions(gamma: float, m: float, n: int, bandwidth: float) -> int:
    """Return p by equation (3), at least 1.

    Args:
        gamma: γ, gradients per second of a peer.
        m: the model's size in bytes.
        n: the number of peers.
        bandwidth: B, bytes per second that a peer can send.
    """
    # Rounded first, so that a ratio that is a whole number in decimals is one in binary.
    return max(1, math.ceil(round(gamma * m * (n - 1) / bandwidth, 9)))


class AkoPeer(ExchangingPeer):
    """A peer that exchanges partitions of its accumulated gradient.

    Attributes:
        p: the number of partitions.
        t: the peer's round.
    """

    not_saved = frozenset({"_layout", "_parts", "_places", "_selections"})

    def __init__(  # noqa: PLR0917 - Algorithm 1's inputs, and the options
        self,
        parameters: FloatVector,
        layout: Layout,
        learning_rate: float | LearningRate,
        number: int,
        peers: int,
        tau: int | None,
        p: int | None,
        *,
        accumulation: bool = True,
        ratio: float | None = None,
    ) -> None:
        """Start at version 0 as peer ``number`` of ``peers``.

        Args:
            tau: τ, the staleness bound; None: none.
            p: the number of partitions, of which there are no more than parameters; None: the peer's
                profile decides. Until then p is 1: nothing of a gradient is left for later rounds.
        """
        super().__init__(parameters, learning_rate, number, peers, tau)
        self.t = 0
        self.needs_profile = p is None
        self._layout = layout
        self._accumulates = accumulation
        self._ratio = ratio
        self._since: dict[int, int] = {}
        """The round from which on a peer is sent gradients, if it came less than p rounds ago."""
        self._divide(1 if p is None else p)

    def _divide(self, p: int) -> None:
        """Use ``p`` partitions from this round on; nothing may be left to send."""
        total = self._layout.total
        self.p = p = min(p, total)
        ends = [total * k // p for k in range(p + 1)]
        self._parts = [slice(*ends[k : k + 2]) for k in range(p)]
        self._places = [np.arange(part.start, part.stop, dtype=np.uint32) for part in self._parts]
        self._selections = [
            None
            if self._ratio is None
            else LargestEntries(self._layout.within((part.start, part.stop)), self._ratio, "tensor")
            for part in self._parts
        ]
        self._queue: deque[FloatVector] = deque()
        """The gradients of the last p rounds."""
        self._accumulated = np.zeros(total if p > 1 else 0, np.float32)

    def profiled(self, gradient_time: float, bandwidth: float) -> None:
        m, n = 4 * self._layout.total, len(self._others) + 1
        self._divide(partitions(1 / gradient_time, m, n, bandwidth))
        self.needs_profile = False

    def diagnose(self) -> Mapping[str, float]:
        return {"partitions": self.p, "lead": self.clocks.lead}

    def joined(self, peer: int) -> None:
        super().joined(peer)
        self._since[peer] = self.t

    def forget(self, peer: int) -> None:
        super().forget(peer)
        self._since.pop(peer, None)

    def _parcels(self, gradient: FloatVector) -> Sequence[Parcel]:
        g = self._accumulate(gradient)
        self._since = {i: since for i, since in self._since.items() if self.t - since < self.p - 1}
        receivers: dict[tuple[int, int | None], list[int]] = {}
        for i in self.others:
            receivers.setdefault(((i + self.t) % self.p, self._since.get(i)), []).append(i)
        parcels = []
        for (k, since), peers in receivers.items():
            values = g[self._parts[k]]
            if since is not None and self._accumulates:
                values = self._sum_since(since, self._parts[k])
            parcels.append(Parcel(self._partition(k, values), peers))
        self.t += 1
        return parcels

    def _accumulate(self, gradient: FloatVector) -> FloatVector:
        """Return g̃, the sum of the last p gradients (line 6); without accumulation the last alone."""
        if self.p == 1 or not self._accumulates:
            return gradient
        self._accumulated += gradient
        if len(self._queue) == self.p:
            oldest = self._queue.popleft()
            self._accumulated -= oldest
            np.copyto(oldest, gradient)
            self._queue.append(oldest)
        else:
            self._queue.append(gradient.copy())
        return self._accumulated

    def _sum_since(self, since: int, part: slice) -> FloatVector:
        """Return a part of the sum of the gradients of the rounds from ``since`` on."""
        first = len(self._queue) - 1 - (self.t - since)
        values = self._queue[first][part].copy()
        for i in range(first + 1, len(self._queue)):
            values += self._queue[i][part]
        return values

    def _partition(self, k: int, values: FloatVector) -> Update:
        selection = self._selections[k]
        if selection is not None:
            chosen = selection.compress(values)
            return SparseUpdate(chosen.indices + np.uint32(self._parts[k].start), chosen.values)
        return DenseUpdate(values) if self.p == 1 else SparseUpdate(self._places[k], values)


class Ako(PeerAlgorithm):
    """Partial gradient exchange."""

    options_type = AkoOptions
    scheduled = True
    diagnostics = (
        Diagnostic("partitions", "p, the partitions of the peer that takes the step."),
        Diagnostic(
            "lead",
            "Gradients by which that peer is ahead of the slowest other, by what has arrived from it.",
        ),
    )

    @staticmethod
    def check(options: AkoOptions, conditions: Conditions) -> None:
        if options.partitions is None and not conditions.profiled and not conditions.gradient_time:
            raise SpecError(
                "equation (3) needs the mean time of a gradient, which is 0 or from a trace: give "
                "`partitions`, the number of parts of the gradient"
            )

    @staticmethod
    def explain(options: AkoOptions, layout: Layout, conditions: Conditions) -> str | None:
        p = chosen_partitions(options, layout, conditions)
        m, n = 4 * layout.total, conditions.workers
        if p is None:
            return "p by equation (3) after each peer's first round, which sends whole gradients"
        if options.partitions is not None:
            return f"p = {min(p, layout.total)} partitions, as given"
        if conditions.uplink is None:
            return "p = 1 partition by equation (3): no rate limits the uplink"
        assert conditions.gradient_time, "checked before"
        gamma, bandwidth = 1 / conditions.gradient_time, conditions.uplink / 8
        return (
            f"p = {p} partitions by equation (3): {gamma:.4g} gradients/s of {m:,} bytes to {n - 1} "
            f"peers, at {bandwidth:,.0f} bytes/s"
        )

    @staticmethod
    def peer(
        options: AkoOptions,
        layout: Layout,
        parameters: FloatVector,
        number: int,
        conditions: Conditions,
    ) -> PeerHalf:
        n, bound = conditions.workers, options.staleness_bound
        return AkoPeer(
            parameters,
            layout,
            conditions.rate,
            number,
            n,
            n if bound is None else bound,
            chosen_partitions(options, layout, conditions),
            accumulation=options.accumulation,
            ratio=options.ratio,
        )


def chosen_partitions(options: AkoOptions, layout: Layout, conditions: Conditions) -> int | None:
    """Return p as given or by equation (3); None if the peer's profile is to decide.

    An uplink without a rate carries everything: p is 1.
    """
    if options.partitions is not None or conditions.profiled:
        return options.partitions
    if conditions.uplink is None:
        return 1
    assert conditions.gradient_time, "checked before"
    gamma, bandwidth = 1 / conditions.gradient_time, conditions.uplink / 8
    return partitions(gamma, 4 * layout.total, conditions.workers, bandwidth)

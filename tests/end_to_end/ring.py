"""Imported by every interpreter of a test as ``sitecustomize``: adds the algorithm ``ring``."""

from collections.abc import Iterable
from typing import Any, Literal

import testbed.algorithms
from testbed.algorithms.all_to_all import ExchangingPeer
from testbed.algorithms.interface import Conditions, Options, PeerAlgorithm
from testbed.algorithms.peer_half import PeerHalf
from testbed.updates import FloatVector, Layout


class RingOptions(Options):
    name: Literal["ring"] = "ring"


class RingPeer(ExchangingPeer):
    def __init__(self, parameters: FloatVector, rate: float, number: int, peers: int) -> None:
        super().__init__(parameters, rate, number, peers)
        self._others = self._others[:1]  # its successor


class Ring(PeerAlgorithm):
    """Each peer sends its gradient to its successor."""

    options_type = RingOptions

    @staticmethod
    def conversations(options: Any, conditions: Conditions) -> Iterable[tuple[int, int]]:
        return ((i, (i + 1) % conditions.workers) for i in range(conditions.workers))

    @staticmethod
    def peer(
        options: Any, layout: Layout, parameters: FloatVector, number: int, conditions: Conditions
    ) -> PeerHalf:
        return RingPeer(parameters, conditions.learning_rate, number, conditions.workers)


testbed.algorithms.ALGORITHMS["ring"] = Ring

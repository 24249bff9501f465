"""Turns at computing, and the learner that comes with a turn."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.learning.learner import Learner
from testbed.nodes.computing_turns import ComputingTurns


@dataclass(frozen=True, slots=True)
class TurnTaking:
    """The learners that a device computes with.

    Attributes:
        own: in this process's own memory; the kernel provides its pages at first use.
        shared: one per turn, in memory that all devices of the host share; empty where a device has a
            process of its own from the start.
        turns: the host's; None where devices have processors of their own (a limit on them).
    """

    own: Learner
    shared: tuple[Learner, ...]
    turns: ComputingTurns | None

    @contextlib.contextmanager
    def take(self) -> Iterator[Learner]:
        """Wait for a turn; in the body, the learner may be used and its results be read."""
        if self.turns is None:
            yield self.own
            return
        with self.turns.take() as turn:
            yield self.own if turn is None or not self.shared else self.shared[turn]

"""Whose turn at computing it is, and the learner that comes with it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.learning.learner import Learner
from testbed.nodes.turns import Turns


@dataclass(frozen=True, slots=True)
class TurnTaking:
    """The learners that a device computes with.

    Attributes:
        own: memory of this process's own; its pages are taken from the kernel when it is first used.
        shared: one per turn, in memory that all devices of the host share; none where a device has a
            process of its own from the start.
        turns: whose turn it is; None where devices have processors of their own (a limit on them).
    """

    own: Learner
    shared: tuple[Learner, ...]
    turns: Turns | None

    @contextlib.contextmanager
    def take(self) -> Iterator[Learner]:
        """Wait for a turn; the learner may be used, and what it returned be read, in the body."""
        if self.turns is None:
            yield self.own
            return
        with self.turns.take() as turn:
            yield self.own if turn is None or not self.shared else self.shared[turn]

"""The buffers of its model that a device keeps for itself, where ``model.buffers`` is ``per-worker``.

A computation begins with the device's buffers, and what it leaves in them becomes the device's when its
gradient is selected from: a computation that is dropped before, which a simulation does not compute at
all, leaves none.
"""

from testbed.checkpoints.stateful import State
from testbed.learning.learner import Learner, OwnBuffers


class KeptBuffers:
    """One device's buffers; nothing where the learner has none of a device's own."""

    def __init__(self) -> None:
        """Start with the buffers as the model's constructor made them."""
        self._kept: OwnBuffers | None = None
        self._left: OwnBuffers | None = None

    def put(self, learner: Learner) -> None:
        """Load the kept buffers into a learner, before a computation."""
        learner.own_buffers = self._kept

    def take(self, learner: Learner) -> None:
        """Keep what the computation has left in the learner."""
        self._left = learner.own_buffers

    def commit(self) -> None:
        """Keep what the last computation has left: its gradient is selected from."""
        self._kept = self._left

    def state(self) -> State:
        """Return what a checkpoint keeps: nothing if there are none."""
        state = {} if self._kept is None else {"buffers": list(self._kept)}
        if self._left is not None and self._left is not self._kept:
            state["left"] = list(self._left)
        return state

    def restore(self, state: State) -> None:
        """Go on from a state that has the entries of ``state``, or others too."""
        self._kept = tuple(state["buffers"]) if "buffers" in state else None
        self._left = tuple(state["left"]) if "left" in state else self._kept

"""The interface between the clock and the faults of a run."""

from typing import Protocol

from testbed.clock.stage import Arrived


class Conditions(Protocol):
    """The effects of faults on the workers."""

    def delays(self, time: float, rank: int, conversation: int, what: float) -> bool:
        """Return True if an event does not take place now; it was added again for later."""

    def factor(self, worker: int) -> float:
        """Return the factor by which a worker's durations are multiplied."""

    def begins(self, worker: int) -> None:
        """Note that a worker begins a computation."""

    def is_reachable(self, worker: int) -> bool:
        """Return True if a worker receives what it is told."""

    def is_cut_off(self, worker: int) -> bool:
        """Return True if nothing arrives from a worker."""

    def thaw(self, worker: int) -> float:
        """Return the time at which a worker's last freeze ends, in seconds."""

    def freed(self, worker: int) -> None:
        """Note that a worker's link may be up again."""

    def early(self, conversation: int) -> Arrived | None:
        """Take a message that was received before it was sent, by the clock; None: there is none."""


class Strikes(Protocol):
    """The faults of a run: when they strike, and when they end."""

    def begin(self) -> None:
        """Remove workers that have not arrived yet, and add the first fault to the events."""

    def strike(self, number: int) -> None:
        """Let the fault of an event begin or end."""

    def pushed(self, worker: int) -> None:
        """Let faults strike that are due after a worker's push."""

    def strike_at_iteration(self) -> None:
        """Let faults strike that are due at the version that was reached."""

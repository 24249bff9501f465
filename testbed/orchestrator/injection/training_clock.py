"""The host's clock and, by it, the time since training began."""

from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Returns the present in seconds of CLOCK_MONOTONIC, as ``time.monotonic`` does."""


class TrainingClock:
    """The clock by which the faults of one run are timed.

    Attributes:
        now: returns the present.
        began: when training began; None before that.
    """

    def __init__(self, now: Clock) -> None:
        self.now = now
        self.began: float | None = None

    @property
    def elapsed(self) -> float:
        """The seconds since training began; 0 before that."""
        return 0.0 if self.began is None else self.now() - self.began

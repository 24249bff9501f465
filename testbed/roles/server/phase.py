"""The progress of a server's run, by the host's clock."""

import time
from dataclasses import dataclass


@dataclass(slots=True)
class Phase:
    """The phase of a run: before training, training, or after it.

    Attributes:
        began: when training began, in seconds of CLOCK_MONOTONIC; None: it has not.
        over: True if training is over, whether or not the run's updates are complete.
    """

    began: float | None = None
    over: bool = False

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began; 0 before that."""
        return 0.0 if self.began is None else time.monotonic() - self.began

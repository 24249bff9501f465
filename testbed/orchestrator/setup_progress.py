"""Time limits of a run's set-up, which fails only when it makes no progress.

Loading libraries and data is one long step that reports nothing before its end, and its duration
depends on the host. All other work reports each step: another device made, linked, started or
connected.
"""

import time
from dataclasses import dataclass, field

LOADING_TIMEOUT = 1200.0
"""Seconds within which libraries and data must be loaded: it takes minutes on an emulated processor."""
SETUP_TIMEOUT = 180.0
"""Seconds within which set-up must make progress once libraries and data are loaded."""
SETUP_TIMEOUT_STARTED = 10.0
"""Seconds added for each container that loads torch for itself: all do so at once."""


@dataclass(slots=True)
class SetupProgress:
    """The progress of set-up, until training begins.

    Attributes:
        began: when the command began, in seconds of CLOCK_MONOTONIC.
        alone: the number of containers that load torch for themselves.
        moved: when set-up last made progress, in seconds of CLOCK_MONOTONIC.
    """

    began: float
    alone: int = 0
    loaded: bool = False
    built: bool = False
    moved: float = field(init=False)

    def __post_init__(self) -> None:
        self.moved = self.began

    def step(self) -> None:
        """Record that set-up makes progress now."""
        self.moved = time.monotonic()

    def overdue(self, now: float) -> str | None:
        """Return what did not happen in time; None while every limit is kept."""
        more = self.alone * SETUP_TIMEOUT_STARTED
        if not self.loaded:
            limit = LOADING_TIMEOUT + more
            late = f"libraries and data were not loaded within {limit:g} s"
            return late if now - self.began > limit else None
        limit = SETUP_TIMEOUT + more
        late = f"training did not begin, and nothing of the set-up got further for {limit:g} s"
        return late if now - self.moved > limit else None

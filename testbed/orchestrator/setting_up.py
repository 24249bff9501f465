"""How long a run may take to begin: loading is work and depends on the host, the rest is not."""

from dataclasses import dataclass

LOADING_TIMEOUT = 1200.0
"""Seconds in which libraries and data must be loaded: minutes on an emulated processor."""
SETUP_TIMEOUT = 180.0
"""Seconds after that in which training must begin."""
SETUP_TIMEOUT_STARTED = 10.0
"""Seconds more, of each, for a container that loads torch for itself."""


@dataclass(slots=True)
class SettingUp:
    """Watches the time until training begins.

    Attributes:
        began: when the command began, in seconds of CLOCK_MONOTONIC.
        alone: how many containers load torch for themselves.
        loaded: when libraries and data were loaded; None as long as they are not.
    """

    began: float
    alone: int = 0
    loaded: float | None = None

    def overdue(self, now: float) -> str | None:
        """What did not happen in time; None as long as it may still happen."""
        more = self.alone * SETUP_TIMEOUT_STARTED
        if self.loaded is None:
            limit, since = LOADING_TIMEOUT + more, self.began
            late = f"libraries and data were not loaded within {limit:g} s"
        else:
            limit, since = SETUP_TIMEOUT + more, self.loaded
            late = f"training did not begin within {limit:g} s of loading libraries and data"
        return late if now - since > limit else None

"""The end of a device's computing and waiting under the wall clock, and how late it is."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WakeUp:
    """When a device is to wake, in seconds of ``time.monotonic()``.

    Attributes:
        at: when it wakes, after what its computation took on this host.
        planned: when it would by the times that were drawn.
        asked: the seconds that were drawn; 0 if no time was.
    """

    at: float
    planned: float
    asked: float

    @classmethod
    def after(cls, began: float, computing: float, waiting: float) -> "WakeUp":
        """Return the end of a computation that has been made, and of the waiting after it.

        Args:
            began: when it began.
            computing, waiting: the seconds drawn for both; no ``computing`` is what the host takes.
        """
        now = time.monotonic()
        planned = (began + computing if computing else now) + waiting
        return cls(max(began + computing, now) + waiting, planned, computing + waiting)

    def tell(self, woke: Callable[[float, float], None]) -> None:
        """Count the wake-up, which is now, if a time was drawn for it.

        Args:
            woke: takes the seconds asked for, and by how many it is late.
        """
        if self.asked:
            woke(self.asked, time.monotonic() - self.planned)

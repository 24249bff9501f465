"""The effects of a run's faults: which workers are frozen, killed, cut off or suspected.

A worker that was struck twice is free again when the last of the faults is over. A worker that is
killed and comes back is alive again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.results.reading.faults import KINDS

Mask = npt.NDArray[np.bool_]
"""One entry for each worker, shape (workers,)."""
CUTS = ("stop-network", "partition")
"""The kinds that stop all traffic between a worker and the server."""


class FaultEffects:
    """The effects of the faults whose records it was given, in order.

    Attributes:
        struck: number of devices that each kind has struck so far, the server included; a device that
            is struck twice counts twice.
        suspected: workers that have sent the server nothing for too long; it does not wait for them.
    """

    def __init__(self, workers: int) -> None:
        self.struck = dict.fromkeys(KINDS, 0)
        self.suspected: Mask = np.zeros(workers, bool)
        self._active = {kind: np.zeros(workers, np.int64) for kind in KINDS}

    def take(self, record: Mapping[str, Any]) -> tuple[npt.NDArray[np.int64], bool]:
        """Take a record as the run log receives it, with devices' numbers (servers' are below 0).

        Returns:
            The workers that it is about, int64, and True if the fault begins.
        """
        kind, begins = record["fault"], record["phase"] == "begin"
        devices: Sequence[int] = record["devices"]
        numbers = np.array([number for number in devices if number >= 0], np.int64)
        if kind == "kill":
            self.suspected[numbers] = False  # the next incarnation is not suspected
        if begins and not record.get("away"):
            self.struck[kind] = self.struck.get(kind, 0) + len(devices)
        if begins and kind == "kill":
            self._active["freeze"][numbers] = 0  # a killed worker is no longer frozen
        count = self._active.setdefault(kind, np.zeros_like(self._active[KINDS[0]]))
        count[numbers] = np.maximum(count[numbers] + (1 if begins else -1), 0)
        return numbers, begins

    def under(self, *kinds: str) -> Mask:
        """Return the workers on which a fault of one of these kinds is active."""
        found: Mask = np.any([self._active[kind] > 0 for kind in kinds], axis=0)
        return found

"""Who of a run's workers is frozen, killed, cut off or suspected, as the records of its faults have it.

A worker that was struck twice is free again when the last of the faults is over. One that is killed and
comes back is there again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.results.reading.faults import KINDS

Mask = npt.NDArray[np.bool_]
"""One entry for each worker, shape (workers,)."""
CUTS = ("stop-network", "partition")
"""The kinds after which nothing passes between a worker and the server."""


class Striking:
    """Takes records of faults, in order.

    Attributes:
        struck: how many devices each kind has struck so far, the server among them; one that is struck
            twice counts twice.
        suspected: the workers that the server has heard nothing of for too long, and does not wait for.
    """

    def __init__(self, workers: int) -> None:
        self.struck = dict.fromkeys(KINDS, 0)
        self.suspected: Mask = np.zeros(workers, bool)
        self._open = {kind: np.zeros(workers, np.int64) for kind in KINDS}

    def take(self, record: Mapping[str, Any]) -> tuple[npt.NDArray[np.int64], bool]:
        """Take a record as the run log gets it, with numbers of devices, -1 that of the server.

        Returns:
            The workers that it is about, int64, and whether the fault begins there.
        """
        kind, begins = record["fault"], record["phase"] == "begin"
        devices: Sequence[int] = record["devices"]
        numbers = np.array([number for number in devices if number >= 0], np.int64)
        if kind == "kill":
            self.suspected[numbers] = False  # the next incarnation is another one
        if begins:
            self.struck[kind] = self.struck.get(kind, 0) + len(devices)
            if kind == "kill":
                self._open["freeze"][numbers] = 0  # what is killed stands still no more
        count = self._open.setdefault(kind, np.zeros_like(self._open[KINDS[0]]))
        count[numbers] = np.maximum(count[numbers] + (1 if begins else -1), 0)
        return numbers, begins

    def under(self, *kinds: str) -> Mask:
        """The workers that a fault of one of these kinds has struck and that is not over."""
        found: Mask = np.any([self._open[kind] > 0 for kind in kinds], axis=0)
        return found

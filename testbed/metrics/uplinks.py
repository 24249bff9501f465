"""Use of each device class's uplinks, computed from samples of the links' counters."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.metrics.state import Uplinks
from testbed.runs.class_records import DeviceClasses
from traffic.counters import COUNTS

Counts = npt.NDArray[np.void]
"""``traffic.counters.COUNTS``, one row per device by number."""


class UplinkMeter:
    """Turns samples of all uplinks of one run into values for each device class."""

    def __init__(self, classes: DeviceClasses, rates: Sequence[int | None]) -> None:
        """Start without a sample.

        Args:
            rates: each device's, in bit/s; None where it is not shaped.
        """
        self._classes = classes
        self._shaped = all(rate is not None for rate in rates)
        self._capacity = classes.add_up(np.array([rate or 0 for rate in rates]) / 8)
        self._before: Counts | None = None
        self._rows = np.zeros(len(rates), COUNTS)
        self._is_new = np.zeros(len(rates), bool)

    def add(self, devices: Sequence[int], rows: Counts) -> Uplinks | None:
        """Take some devices' rows of a sample; return the values, or None before all were sampled.

        A sample ends when all have been, or one for the second time: the host of the others is lost.
        """
        if self._before is not None and self._is_new[devices].any():
            self._end_sample()
        self._rows[devices], self._is_new[devices] = rows, True
        is_whole = self._is_new.all()
        told = self._by_class(self._rows) if is_whole or self._before is not None else None
        if is_whole:
            self._end_sample()
        return told

    def _end_sample(self) -> None:
        self._before = self._rows.copy()
        self._is_new[:] = False

    def _by_class(self, now: Counts) -> Uplinks:
        by_class, add_up = now["class_bytes"] >= 0, self._classes.add_up
        sent = np.where(by_class, now["class_bytes"], now["tx_bytes"])
        dropped = now["tx_dropped"] + np.maximum(now["class_dropped"], 0)
        result = Uplinks(add_up(sent), add_up(dropped))
        if by_class.all():
            result.backlog = add_up(now["backlog_bytes"])
        if self._shaped:
            result.capacity = self._capacity
            if self._before is not None:
                seconds = float((now["time"] - self._before["time"]).mean())
                moved = add_up(now["class_bytes"] - self._before["class_bytes"])
                if seconds > 0:
                    result.utilisation = moved / (self._capacity * seconds)
        return result

"""The pace of a device under all the faults that slow it down: one rule, the same under both clocks.

Factors multiply. Of several rates the least holds: the tightest bottleneck, whichever fault came last.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeVar

from testbed.faults.fault import Fault

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a device; by default as planned.

    Attributes:
        factor: the factor by which its durations are multiplied; finite, however many faults multiply.
        uplink, downlink: rates of its link in bit/s; None: as planned.
    """

    factor: float = 1.0
    uplink: int | None = None
    downlink: int | None = None

    @classmethod
    def under(cls, faults: Iterable[Fault]) -> Self:
        """Return the pace of a device under these faults."""
        lasting, factor = list(faults), 1.0
        for fault in lasting:
            factor *= fault.factor
        return cls(
            min(factor, sys.float_info.max),
            least(fault.uplink for fault in lasting),
            least(fault.downlink for fault in lasting),
        )


def least(values: Iterable[_Number | None]) -> _Number | None:
    """Return the least of the values that are not None; None if all are."""
    return min((value for value in values if value is not None), default=None)

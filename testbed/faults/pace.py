"""How slow a device is under all the faults that slow it down: one rule, the same under both clocks.

Factors multiply. Of rates, the least holds: the tightest bottleneck, whichever fault came last.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeVar

from testbed.faults.fault import Fault

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Pace:
    """How slow a device is; without arguments as planned.

    Attributes:
        factor: what its durations are multiplied by; finite, however many faults multiply.
        uplink, downlink: rates of its link in bit/s; None: as planned.
    """

    factor: float = 1.0
    uplink: int | None = None
    downlink: int | None = None

    @classmethod
    def under(cls, faults: Iterable[Fault]) -> Self:
        """How slow a device is under these."""
        lasting, factor = list(faults), 1.0
        for fault in lasting:
            factor *= fault.factor
        return cls(
            min(factor, sys.float_info.max),
            least(fault.uplink for fault in lasting),
            least(fault.downlink for fault in lasting),
        )


def least(values: Iterable[_Number | None]) -> _Number | None:
    """The least of those that are not None; None if all are."""
    return min((value for value in values if value is not None), default=None)

"""What a parameter server is told that goes on from a checkpoint."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from testbed.clock import faults
from testbed.roles.server import outstanding

STORED = (*faults.STORED, *outstanding.STORED)
"""What a server's checkpoints are made of, beside plain values and arrays."""


@dataclass(frozen=True, slots=True)
class CameBack:
    """A server that was killed, or whose run was interrupted, and started again.

    Attributes:
        kills: how often it was killed so far.
        training: when training began, in seconds of CLOCK_MONOTONIC; None of an interrupted run.
        elapsed: how long an interrupted run had trained, by the host's clock.
    """

    kills: int
    training: float | None
    elapsed: float = 0.0

    @classmethod
    def told(cls, role: Mapping[str, Any]) -> Self | None:
        """What a role's arguments say of it; None if it begins."""
        if not role.get("restore"):
            return None
        elapsed = float(role.get("elapsed", 0.0))
        return cls(int(role["kills"]), role.get("training"), elapsed)

    def began(self) -> float:
        """When training began, as if an interrupted run went on just now."""
        return time.monotonic() - self.elapsed if self.training is None else self.training

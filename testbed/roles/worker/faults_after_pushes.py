"""What strikes a worker behind its own pushes, under the wall clock.

The worker itself counts its pushes and knows from the seed which of them is followed by a fault, so
that it is the same devices after the same number of pushes however fast anything goes. When that push
has been answered, and before the next computation begins, it tells the orchestrator, which has the real
thing done to it; a device that is to stop or to die does nothing more meanwhile. For the others the
real thing comes a few milliseconds later.
"""

import time
from collections.abc import Callable
from typing import Any, Self

from testbed.faults.fault import Fault
from testbed.faults.schedule import Schedule
from testbed.roles.pace import Draws, PacedTimes, Paces

_LONG = 3600.0


class FaultsAfterPushes:
    """One worker's pushes, and what follows them."""

    def __init__(
        self,
        schedule: Schedule,
        number: int,
        paces: Paces,
        tell: Callable[[dict[str, Any]], None],
        pushes: int = 0,
    ) -> None:
        """Prepare.

        Args:
            paces: of all devices, of which this one changes its own.
            tell: the orchestrator, what happens.
            pushes: how many this worker made in its earlier incarnations.
        """
        self._schedule = schedule
        self._number = number
        self._pushes = pushes
        self._tell = tell
        self._paces = paces
        self._unanswered = False

    @classmethod
    def nothing(cls, number: int) -> Self:
        """For a worker that nothing strikes behind its pushes."""
        return cls(Schedule((), 0, number + 1), number, Paces(None, number + 1), lambda _: None)

    def paced(self, times: Draws) -> PacedTimes:
        """This worker's times, at its pace."""
        return PacedTimes(times, self._paces, self._number)

    def pushed(self) -> None:
        """A push has left."""
        self._pushes += 1
        self._unanswered = True

    def answered(self, version: int) -> None:
        """Parameters of this version have come; returns when the worker may go on, if ever."""
        if not self._unanswered:
            return
        self._unanswered = False
        faults = self._schedule.after_push(self._number, self._pushes)
        for fault in faults:
            if fault.kind == "slow":
                self._paces[self._number] *= fault.factor
            # The orchestrator knows the time.
            record = fault.record("begin", [self._number], 0.0, version)
            self._tell(record | {"pushes": self._pushes})
        for fault in faults:
            self._stop(fault)

    def _stop(self, fault: Fault) -> None:
        """Do nothing while a fault lasts that stops the device."""
        if fault.kind == "kill" or (fault.kind == "freeze" and fault.duration is None):
            while True:
                time.sleep(_LONG)  # the end comes from outside
        if fault.kind == "freeze":
            assert fault.duration is not None
            time.sleep(fault.duration)

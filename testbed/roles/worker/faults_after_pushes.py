"""Faults that strike a worker after its own pushes, under the wall clock.

The worker counts its pushes and knows from the seed which of them a fault follows, so that the same
devices are struck after the same number of pushes, at any speed. When such a push has been answered,
and before the next computation begins, the worker reports the fault to the orchestrator, which carries
it out. A worker that is to be frozen or killed does nothing more meanwhile. A slowdown takes effect at
once, any other fault a few milliseconds later.
"""

import time
from collections.abc import Callable

from testbed.faults.fault import Fault
from testbed.faults.schedule import Schedule
from testbed.messages.reports import FaultReported
from testbed.roles.pace import PacedTimes, Paces
from testbed.training.times import DeviceTimes

_LONG = 3600.0


class FaultsAfterPushes:
    """The pushes of one worker, and the faults that follow them."""

    def __init__(
        self,
        schedule: Schedule,
        number: int,
        paces: Paces,
        send: Callable[[FaultReported], None],
        pushes: int = 0,
    ) -> None:
        """Start before the worker's next push.

        Args:
            pushes: the number of pushes that this worker made in its earlier incarnations.
        """
        self._schedule = schedule
        self._number = number
        self._pushes = pushes
        self._send = send
        self._paces = paces
        self._unanswered = False

    def paced(self, times: DeviceTimes) -> PacedTimes:
        return PacedTimes(times, self._paces, self._number)

    def pushed(self) -> None:
        self._pushes += 1
        self._unanswered = True

    def answered(self, version: int) -> None:
        """Apply the faults after an answered push; return when the worker may go on, if ever."""
        if not self._unanswered:
            return
        self._unanswered = False
        faults = self._schedule.after_push(self._number, self._pushes)
        for fault in faults:
            if fault.kind == "slow":
                self._paces[self._number] *= fault.factor
            # The orchestrator adds the time.
            record = fault.record("begin", [self._number], 0.0, version)
            self._send(FaultReported(record | {"pushes": self._pushes}))
        for fault in faults:
            self._stop(fault)

    def _stop(self, fault: Fault) -> None:
        if fault.kind == "kill" or (fault.kind == "freeze" and fault.duration is None):
            while True:
                time.sleep(_LONG)  # until the process is killed from outside
        if fault.kind == "freeze":
            assert fault.duration is not None
            time.sleep(fault.duration)

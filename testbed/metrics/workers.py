"""The workers or peers of a run, as entries of its log tell of them: struck, dead, suspected.

A worker that was struck twice is free again when the last of the faults is over. A worker that is
killed and comes back is alive again.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.messages.fault_changes import KINDS, AnyFaultChange
from testbed.messages.reports import Suspected, Welcomed
from testbed.runs.class_records import DeviceClasses
from testbed.telemetry.entries import FaultChanged, Noted, RunEntry
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.state_board import DeviceState

STATES = ("starting", "training", "waiting", "frozen", "dead", "done")
CUTS = ("stop-network", "partition")
"""The kinds of fault that stop all traffic between a worker and the server."""
Mask = npt.NDArray[np.bool_]
"""One entry for each worker, shape (workers,)."""
PerClass = npt.NDArray[Any]
"""A value for each device class, shape (classes,)."""


class Workers:
    """The workers of one run.

    Attributes:
        struck: number of devices that each kind of fault has struck so far, the server included; a
            device that is struck twice counts twice.
        lost: deaths of each class, by a fault or by themselves, shape (classes,).
        frozen, exited: workers that the agent has frozen, and whose process has ended; False where it
            is not told.
    """

    def __init__(self, names: Sequence[str], classes: DeviceClasses) -> None:
        """Start with all workers alive, given by their names in the order of their numbers."""
        workers = len(names)
        self.struck: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.lost: PerClass = np.zeros(len(classes.names), np.int64)
        self.frozen: Mask = np.zeros(workers, bool)
        self.exited: Mask = np.zeros(workers, bool)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._classes = classes
        self._dead: Mask = np.zeros(workers, bool)
        self._suspected: Mask = np.zeros(workers, bool)
        self._active: dict[str, npt.NDArray[np.int64]] = {
            kind: np.zeros(workers, np.int64) for kind in KINDS
        }

    def take(self, entry: RunEntry) -> None:
        """Take an entry of the run's log."""
        match entry:
            case FaultChanged(record, devices):
                self._change(record, devices)
            case Suspected(number) if 0 <= number < len(self._dead):  # an aggregator's is above
                self._suspected[number] = True
            case Welcomed(number) if 0 <= number < len(self._dead):
                self._suspected[number] = False
            case Noted(device=str(name), kind=EventKind.DIED) if name in self._numbers:
                self._lose(np.array([self._numbers[name]]))
            case Noted(kind=EventKind.WENT_BACK):
                self._suspected[:] = False

    def _change(self, record: AnyFaultChange, devices: Sequence[str]) -> None:
        """Take the beginning or the end of a fault at some devices; a server is none of the workers."""
        kind, begins = record["fault"], record["phase"] == "begin"
        workers = [self._numbers[name] for name in devices if name in self._numbers]
        numbers = np.array(workers, np.int64)
        if begins and not record.get("away"):
            self.struck[kind] = self.struck.get(kind, 0) + len(devices)
        count = self._active.setdefault(kind, np.zeros_like(self._active[KINDS[0]]))
        if kind == "kill":
            self._suspected[numbers] = False  # the next incarnation is not suspected
            if begins:
                self._active["freeze"][numbers] = 0  # a killed worker is no longer frozen
                if not record.get("away"):
                    self._lose(numbers)
            else:
                self._dead[numbers] = self.exited[numbers] = False
        count[numbers] = np.maximum(count[numbers] + (1 if begins else -1), 0)

    def _lose(self, numbers: npt.NDArray[np.int64]) -> None:
        """Count the deaths of workers, of those that are not dead."""
        self.lost += self._classes.count(numbers[~self._dead[numbers]])
        self._dead[numbers] = True

    def _under(self, *kinds: str) -> Mask:
        """Return the workers on which a fault of one of these kinds is active."""
        found: Mask = np.any([self._active[kind] > 0 for kind in kinds], axis=0)
        return found

    @property
    def cut(self) -> PerClass:
        """The number of workers of each class that are cut off."""
        return self._classes.count(np.flatnonzero(self._under(*CUTS)))

    @property
    def suspected(self) -> PerClass:
        """The number of workers of each class that are suspected."""
        return self._classes.count(np.flatnonzero(self._suspected))

    def counts(
        self, states: npt.NDArray[Any] | None = None, *, ended: bool = False
    ) -> dict[str, PerClass]:
        """Count the workers of each class by state.

        Args:
            states: each worker's ``board.DeviceState`` as it says itself; None if unknown: then
                only the dead and the frozen are counted, unless the run has ended.
        """
        dead = self._dead | self._under("kill")
        frozen = ((self.frozen & ~self.exited) | self._under("freeze")) & ~dead
        if states is None and not ended:
            return {"dead": self._count(dead), "frozen": self._count(frozen)}
        known = np.zeros(len(dead), np.int64) if states is None else states
        places = np.array([STATES.index(state.name.lower()) for state in DeviceState])[known]
        places[self.exited | ended] = STATES.index("done")
        places[frozen], places[dead] = STATES.index("frozen"), STATES.index("dead")
        return {name: self._count(places == place) for place, name in enumerate(STATES)}

    def _count(self, which: Mask) -> PerClass:
        return self._classes.count(np.flatnonzero(which))

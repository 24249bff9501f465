"""States of the workers of a run under way, from the board, their exits and their faults."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.metrics.fault_effects import CUTS, FaultEffects
from testbed.metrics.state import STATES
from testbed.runs.device_classes import DeviceClasses
from testbed.telemetry.board import Board, State


class LiveDevices:
    """The workers or peers of one run.

    Attributes:
        fault_effects: the effects of the experiment's faults so far.
    """

    def __init__(self, classes: DeviceClasses, board: Board | None) -> None:
        """Begin with all workers alive.

        Args:
            board: the memory that they write to; None for a simulation, which has none.
        """
        workers = len(classes.of_device)
        self.fault_effects = FaultEffects(workers)
        self._classes = classes
        self._board = board
        self._exited = np.zeros(workers, bool)
        self._dead = np.zeros(workers, bool)
        self._frozen = np.zeros(workers, bool)

    def struck(self, record: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """Take a record of a fault; return the workers whose death no other message reports."""
        numbers, begins = self.fault_effects.take(record)
        if record["fault"] == "kill":
            if not begins:  # they are new incarnations
                self._exited[numbers] = self._dead[numbers] = False
            elif self._board is None:
                self._dead[numbers] = True
                return numbers
        return numbers[:0]

    def froze(self, number: int, *, yes: bool) -> None:
        """Note that the agent froze or thawed a worker."""
        self._frozen[number] = yes

    def left(self, number: int, status: int) -> bool:
        """Note that a worker's process ended with a status; return True if it crashed.

        A worker that a fault has frozen or cut off is killed when training is over: that is no crash.
        """
        out = self.fault_effects.under("freeze", *CUTS)[number]
        crashed = status != 0 and bool(self.fault_effects.under("kill")[number] or not out)
        self._exited[number] = True
        self._dead[number] |= crashed
        return crashed

    def counts(self, *, begun: bool, ended: bool) -> dict[str, npt.NDArray[Any]]:
        """Count the workers of each class, shape (classes,), for each of ``STATES``.

        Args:
            begun, ended: True if training has begun, and if the run is over.
        """
        workers = len(self._classes.of_device)
        if self._board is not None and self._board.shared:
            states = self._board.states()[:workers].astype(np.int64)
        else:
            states = np.full(workers, State.TRAINING if begun else State.STARTING, np.int64)
        places = np.array([STATES.index(state.name.lower()) for state in State])[states]
        places[self._exited | ended] = STATES.index("done")
        frozen = (self._frozen & ~self._exited) | self.fault_effects.under("freeze")
        places[frozen] = STATES.index("frozen")
        places[self._dead] = STATES.index("dead")
        return {
            name: self._classes.count(np.flatnonzero(places == place))
            for place, name in enumerate(STATES)
        }

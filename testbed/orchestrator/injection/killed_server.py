"""The parameter server's process, as faults end it and have it started again."""

import math
import time
from collections.abc import Callable
from typing import Any

from testbed.device_names import SERVER_NAME, SERVER_NUMBER
from testbed.faults.fault import Fault
from testbed.orchestrator.injection.impairments import Ask


class KilledServer:
    """Of one run; moments are of CLOCK_MONOTONIC, in seconds.

    Attributes:
        kills: how often the server was killed, in all sessions of the run.
        killed: whether it is to be killed or is, and was not started again.
        coming: whether it was started again, and has not said whom it expects.
        fault: what killed it, under the wall clock.
        last_end: when the last one that was killed had ended.
    """

    def __init__(self, ask: Ask, start: Callable[[str, dict[str, Any]], None]) -> None:
        """It is there, and was never killed.

        Args:
            ask: the agent.
            start: a device, in a role.
        """
        self.kills = 0
        self.killed = self.coming = False
        self.fault: Fault | None = None
        self.last_end = -math.inf
        self._ask = ask
        self._start = start
        self._back = -math.inf
        self._exited = False

    def kill(self, kills: int, fault: Fault | None = None) -> None:
        """Have it killed, for this time.

        Args:
            fault: what says when it is started again; None: as soon as that is possible.
        """
        self.kills, self.killed, self.coming, self.fault = kills, True, False, fault
        self._exited = False
        self._back = time.monotonic() + (fault.duration or 0.0) if fault else -math.inf
        self._ask({"kill": SERVER_NAME})

    def exited(self) -> bool:
        """Its process has ended; whether that was the testbed's doing."""
        if self.killed:
            self._exited = True
            self.last_end = time.monotonic()
        return self.killed

    @property
    def due(self) -> float:
        """When it is to be started again; infinite if it is there, or has not ended yet."""
        return self._back if self._exited else math.inf

    def start_again(self, training: float | None) -> None:
        """Start it.

        Args:
            training: when training began.
        """
        self.killed = self._exited = False
        self.coming = True
        role = {"role": "server", "number": SERVER_NUMBER, "restore": True, "kills": self.kills}
        self._start(SERVER_NAME, role | {"training": training})

"""Kill the parameter server's process and start it again, as faults demand."""

import math

from testbed.device_names import SERVER_NAME, SERVER_NUMBER
from testbed.faults.fault import Fault
from testbed.messages.requests import KillDevice
from testbed.orchestrator.injection.impairments import Ask
from testbed.orchestrator.injection.training_clock import TrainingClock
from testbed.orchestrator.injection.workers import Start


class KilledServer:
    """Kills and restarts of one run's server; all times are CLOCK_MONOTONIC in seconds.

    Attributes:
        kills: how often the server was killed, in all sessions of the run.
        killed: whether its kill was requested, and it was not started again since.
        restoring: whether it was started again, and has not yet reported which workers it expects.
        fault: the fault that killed it, under the wall clock.
        last_end: when the last killed server process had ended.
    """

    def __init__(self, ask: Ask, start: Start, clock: TrainingClock) -> None:
        """Begin with a server that was never killed.

        Args:
            ask: sends a request to the agent.
        """
        self.kills = 0
        self.killed = self.restoring = False
        self.fault: Fault | None = None
        self.last_end = -math.inf
        self._ask, self._start, self._clock = ask, start, clock
        self._back = -math.inf
        self._exited = False

    def kill(self, kills: int, fault: Fault | None = None) -> None:
        """Have the agent kill the server.

        Args:
            kills: the number of kills, this one included.
            fault: the fault whose duration says when the server is started again; None: as soon as
                possible.
        """
        self.kills, self.killed, self.restoring, self.fault = kills, True, False, fault
        self._exited = False
        self._back = self._clock.now() + (fault.duration or 0.0) if fault else -math.inf
        self._ask(KillDevice(SERVER_NAME))

    def exited(self) -> bool:
        """Note that the server's process has ended; return True if a fault killed it."""
        if self.killed:
            self._exited = True
            self.last_end = self._clock.now()
        return self.killed

    @property
    def due(self) -> float:
        """The time of the server's next start; infinite if it is alive, or has not ended yet."""
        return self._back if self._exited else math.inf

    def start_again(self) -> None:
        """Start the server again; it restores its last checkpoint."""
        self.killed = self._exited = False
        self.restoring = True
        role = {"role": "server", "number": SERVER_NUMBER, "restore": True, "kills": self.kills}
        self._start(SERVER_NAME, role | {"training": self._clock.began})

"""Kill a parameter server's process and start it again, as faults demand."""

import math

from testbed.faults.fault import Fault
from testbed.messages.fault_changes import FaultChange
from testbed.messages.requests import KillDevice
from testbed.orchestrator.injection.agenda import TrainingClock
from testbed.orchestrator.injection.impairments import Ask
from testbed.orchestrator.injection.killable_workers import Start
from testbed.roles.arguments import RestartArguments, RoleArguments
from testbed.runs.strikes import Strikes


class KilledServer:
    """Kills and restarts of one server of a run; all times are CLOCK_MONOTONIC in seconds.

    Attributes:
        kills: how often the server was killed, in all sessions of the run; under the virtual clock how
            often any was.
        restoring: whether it was started again, and has not yet reported which workers it expects.
        last_end: when the last killed server process had ended.
    """

    def __init__(
        self,
        number: int,
        name: str,
        ask: Ask,
        start: Start,
        *,
        clock: TrainingClock,
        strikes: Strikes,
    ) -> None:
        """Start with a server that was never killed."""
        self._number, self._name = number, name
        self.kills = 0
        self.restoring = False
        self.last_end = -math.inf
        self._ask, self._start, self._clock, self._strikes = ask, start, clock, strikes
        self._killed = self._exited = False  # since it was last started
        self._fault: Fault | None = None
        self._back = -math.inf

    def write(self, record: FaultChange) -> None:
        """Write to the log that a fault of the server begins or ends, as the server itself reports."""
        fault, when, version = Fault.of_record(record), record["time"], record["iteration"]
        self._strikes.write(fault.record(record["phase"], [self._number], when, version))

    def begin_fault(self, fault: Fault, when: float, version: int) -> None:
        """Kill the server by a fault of the wall clock, and write its record."""
        self._strikes.write(fault.record("begin", [self._number], when, version))
        self.kill(self.kills + 1, fault)

    def kill(self, kills: int, fault: Fault | None = None) -> None:
        """Have the agent kill the server.

        Args:
            kills: the number of kills, this one included.
            fault: the fault whose duration says when the server is started again; None: as soon as
                possible.
        """
        self.kills, self.restoring, self._fault = kills, False, fault
        self._killed, self._exited = True, False
        self._back = self._clock.now() + (fault.duration or 0.0) if fault else -math.inf
        self._ask(KillDevice(self._name))

    def exited(self) -> bool:
        """Record the end of the server's process; return True if a fault killed it."""
        if self._killed:
            self._exited = True
            self.last_end = self._clock.now()
        return self._killed

    @property
    def due(self) -> float:
        """The time of the server's next start; infinite if it is alive, or has not ended yet."""
        return self._back if self._exited else math.inf

    @property
    def is_due(self) -> bool:
        """True if it is time to start the server again."""
        return self._clock.now() >= self.due

    @property
    def is_away(self) -> bool:
        """True from a kill until the restored server has reported which workers it expects."""
        return self._killed or self.restoring

    def start_again(self, version: int) -> None:
        """Start the server again; it restores its last checkpoint.

        Args:
            version: the last version that it has reported.
        """
        if self._fault is not None:
            now = self._clock.elapsed
            self._strikes.write(self._fault.record("end", [self._number], now, version))
        self._killed = self._exited = False
        self.restoring = True
        restart: RestartArguments = {"kills": self.kills, "training": self._clock.began}
        role: RoleArguments = {"role": "server", "number": self._number, "restore": True, **restart}
        self._start(self._name, role)

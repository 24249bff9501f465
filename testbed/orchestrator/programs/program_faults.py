"""The faults of a run of programs: begin, undo and record them; and devices that arrive and leave.

Each is timed by the wall clock. What dies with a device, and what is started when it comes back, is
decided by the run.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from testbed.faults.fault import Fault
from testbed.faults.schedule import TimedFault
from testbed.messages.fault_changes import KINDS
from testbed.messages.requests import KillDevice
from testbed.orchestrator.injection.agenda import Agenda, Clock
from testbed.orchestrator.injection.impairments import Ask, Impairments
from testbed.orchestrator.injection.traced_rates import TracedRates
from testbed.planning.program_plan import ProgramPlan
from testbed.runs.deduplication import Deduplication
from testbed.runs.strikes import Strikes
from testbed.telemetry.run_log import RunLog


class Gone(NamedTuple):
    """A device was killed, or has left; ``for_good`` if it does not come back."""

    device: str
    for_good: bool


class Back(NamedTuple):
    """A device that was gone is due to come back."""

    device: str


class ProgramFaults:
    """The faults of one run."""

    def __init__(
        self,
        plan: ProgramPlan,
        *,
        ask: Ask,
        log: RunLog,
        clock: Clock,
        round_of: Callable[[], int],
    ) -> None:
        """Start without faults.

        Args:
            round_of: returns the round of the last measurement; 0 before the first.
        """
        self._numbers = plan.numbers
        self._names = {number: name for name, number in plan.numbers.items()}
        self._ask, self._now, self._round_of = ask, clock, round_of
        self._began = 0.0
        self._strikes = Strikes(
            log,
            lambda: self.elapsed,
            Deduplication(),
            servers=1,
            workers=len(self._names),
        )
        self._agenda = Agenda(plan.schedule)
        self._impairments = Impairments(self._names, ask, wall=True)
        self._rates = TracedRates(plan.followed_traces, self._names, ask=ask, clock=clock)
        self._kills: dict[int, int] = dict.fromkeys(self._names, 0)
        self._gone: set[int] = set()

    @property
    def elapsed(self) -> float:
        """The seconds since the programs began."""
        return self._now() - self._began if self._began else 0.0

    @property
    def due(self) -> float:
        """The moment at which ``turn`` has something to do."""
        return min(self._rates.due, self._agenda.due)

    def begin(self, when: float) -> None:
        """Count the faults' times from a moment of CLOCK_MONOTONIC."""
        self._began = when
        self._agenda.begin(when, -math.inf)
        self._rates.training(when)

    def turn(self) -> Iterator[Gone | Back]:
        """Do what is due by now; yield the devices that are gone, or come back, because of it."""
        self._rates.turn()
        while due := self._agenda.take(self._now()):
            if isinstance(due, TimedFault):
                yield from self._begin(due.fault, due.devices)
                continue
            struck = [
                number
                for number, kills in due.struck.items()
                if due.fault.kind != "freeze" or self._kills[number] == kills
            ]
            if struck:
                yield from self._end(due.fault, struck)

    def lose(self, device: str) -> None:
        """Drop a device whose keeper died otherwise than by a fault: no fault strikes it again."""
        if device in self._numbers:
            self._gone.add(self._numbers[device])

    def release(self) -> None:
        """Undo every fault: the run ends."""
        self._agenda.clear()
        self._rates.release()
        for number in self._names:
            self._impairments.forget(number, KINDS)

    def _begin(self, fault: Fault, devices: Sequence[int]) -> Iterator[Gone]:
        devices = [number for number in devices if number not in self._gone]
        if not devices:
            return
        self._strikes.write(fault.record("begin", devices, self.elapsed, self._round_of()))
        if fault.kind == "kill":
            for number in devices:
                self._gone.add(number)
                self._kills[number] += 1
                self._ask(KillDevice(self._names[number]))
                self._impairments.forget(number, ("freeze",))  # the next process is not frozen
                yield Gone(self._names[number], fault.duration is None)
        else:
            self._impairments.begin(fault, devices)
        if fault.duration is not None:
            kills = {number: self._kills[number] for number in devices}
            self._agenda.end_at(self._now() + fault.duration, fault, kills)

    def _end(self, fault: Fault, devices: Sequence[int]) -> Iterator[Back]:
        self._strikes.write(fault.record("end", devices, self.elapsed, self._round_of()))
        if fault.kind != "kill":
            self._impairments.end(fault, devices)
            return
        for number in devices:
            self._gone.discard(number)
            yield Back(self._names[number])

"""Devices that are frozen, cut off, slowed down or killed, under the virtual clock.

A freeze delays the end of a computation by as long as it lasts, and nothing begins during it. What
arrives meanwhile leaves the link, whatever happens to that, and waits at the device for its thaw. A
link that is down holds what is under way on it (``testbed.clock.transfers``). A killed device leaves,
and may come back as another incarnation; faults of its link and slow faults outlive it. A device that
is frozen or cut off for good is lost, which the others cannot know.

A worker with a server on its machine is not cut off by a fault of the machine's link: the two still
talk. The link carries the server's messages whatever becomes of the worker.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar, get_args

from testbed.checkpoints.stateful import Stateful
from testbed.clock.background_rates import Taking
from testbed.clock.event_clock import EventClock, TimedDevice
from testbed.clock.event_queue import FINISHED
from testbed.clock.traced_line import TracedLine
from testbed.faults.fault import Fault
from testbed.faults.slowdown import Pace
from testbed.messages.fault_changes import FaultChange, Phase

Timed = TypeVar("Timed", bound=TimedDevice)
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(slots=True)
class Condition:
    """The condition of one device: what faults have done to it.

    Attributes:
        incarnation: how often it was killed.
        frozen: the time at which its freeze ends, in seconds.
        owed: seconds by which the end of its computation under way is late.
        lost: True if nothing more will come from it.
        away: of a killed device that may come back, what is left of it: its links.
        slow: the faults that slow it down, by their strike's number and in the order in which they
            began.
        factor: the factor by which its durations are multiplied.
        shares_link: True if a server is on its machine, and has the link even when the device is gone.
        down: the time at which that link is up again, if it is down; in seconds.
    """

    incarnation: int = 0
    frozen: float = 0.0
    owed: float = 0.0
    lost: bool = False
    away: TimedDevice | None = None
    slow: dict[int, Fault] = field(default_factory=dict)
    factor: float = 1.0
    shares_link: bool = False
    down: float = 0.0

    @property
    def pace(self) -> Pace:
        return Pace.under(self.slow.values())


class DeviceConditions(Stateful, ABC, Generic[Timed]):
    """The conditions of a run's devices: the clock consults them, and faults change them."""

    not_saved = frozenset({"_clock", "_carry_out"})

    def __init__(self, clock: EventClock[Timed], carry_out: Callable[[FaultChange], None]) -> None:
        """Start with every device well.

        Args:
            carry_out: makes the beginning or the end of a fault real, and writes its record down.
        """
        self._clock, self._carry_out = clock, carry_out
        self._conditions: dict[int, Condition] = {device: Condition() for device in clock.devices}

    def __getitem__(self, device: int) -> Condition:
        return self._conditions[device]

    @property
    def away(self) -> list[int]:
        return [device for device, one in self._conditions.items() if one.away is not None]

    # -- what the clock asks

    def delays(self, time: float, rank: int, number: int, what: float) -> bool:
        """Return True if an event does not take place now; it was added again for later."""
        device = self._clock.device(number)
        one = self._conditions[device]
        if one.frozen > time and (at_thaw := self._at_thaw(rank, what)) is not None:
            if one.frozen < inf:  # otherwise it never happens
                self._clock.events.add(one.frozen, at_thaw, number, what)
        elif rank == FINISHED and one.owed and self._is_under_way(device, what):
            if one.owed < inf:
                self._clock.events.add(time + one.owed, FINISHED, number, what)
            one.owed = 0.0
        else:
            return False
        return True

    @abstractmethod
    def _at_thaw(self, rank: int, what: float) -> int | None:
        """Return the rank that an event has at the thaw; None if it is no matter of the device."""

    def _is_under_way(self, device: int, begun: float) -> bool:
        """Return True if an end is that of the computation under way, not of an interrupted one."""
        return True

    @abstractmethod
    def _is_computing(self, device: int) -> bool:
        """Return True if a computation is under way, or the waiting after it."""

    def begins(self, device: int) -> float:
        """Return the factor of the durations of a computation that starts now on a device."""
        one = self._conditions[device]
        one.owed = 0.0  # no freeze has made it late yet
        return one.factor

    def is_cut_off(self, device: int) -> bool:
        timed = self._clock.devices.get(device)
        return timed is not None and timed.up.down > self._clock.now

    def is_reachable(self, device: int) -> bool:
        """Return True if a device receives what it is sent, and told."""
        return self._conditions[device].frozen <= self._clock.now and not self.is_cut_off(device)

    def freed(self, device: int) -> None:
        """Set the rates of a device's link on shared transfers, as the faults on it leave them."""
        transfers, one = self._clock.transfers, self._conditions[device]
        if transfers is not None and (one.shares_link or device in self._clock.devices):
            pace = one.pace
            is_down = one.down > self._clock.now or self.is_cut_off(device)
            rates = pace.uplink, pace.downlink
            transfers.set_rates(
                self._clock.now, device, *rates, is_down=is_down, for_good=one.down == inf
            )

    # -- what faults do

    def tell(self, fault: Fault, phase: Phase, devices: Sequence[int]) -> None:
        """Make the beginning or the end of a fault real, and write its record down."""
        self._carry_out(self.record(fault, phase, devices))

    def record(self, fault: Fault, phase: Phase, devices: Sequence[int]) -> FaultChange:
        """Return the record of a fault's beginning or end at this moment."""
        return fault.record(phase, devices, self._clock.now, self._clock.version)

    def fetch(self, device: int) -> bool:
        """Receive what a device was told to send before it is struck; return False if it is gone."""
        return True

    def prepare(self, fault: Fault, struck: Sequence[int]) -> None:
        """Do what comes before the record of a fault that strikes devices."""

    def freeze(self, device: int, until: float) -> None:
        """Stop a device until a time."""
        one = self._conditions[device]
        if until <= one.frozen:
            return
        begin = max(one.frozen, self._clock.now)
        if self._is_computing(device):
            one.owed += until - begin
        if until < inf:  # otherwise the computation is cut short
            self._clock.computing.freeze(device, begin, until)
        one.frozen = until

    def cut_off(self, device: int, until: float) -> None:
        timed, now = self._clock.devices[device], self._clock.now
        self._change_lines(device, timed.up.hold(now, until), timed.down.hold(now, until))
        self.freed(device)
        self._await_link(device, until)

    @abstractmethod
    def _await_link(self, device: int, until: float) -> None:
        """Add the moment to the events at which a device's link is up again."""

    @abstractmethod
    def _change_lines(
        self,
        device: int,
        up: Callable[[float], float] | None,
        down: Callable[[float], float] | None,
    ) -> None:
        """Give what is under way on a device's own links its new times.

        Args:
            up, down: functions from old to new times at which it has passed; None: they stay.
        """

    def tell_background(self, device: int) -> None:
        """Have background traffic follow a device's condition, and messages what it leaves of links."""
        clock, one = self._clock, self._conditions[device]
        background = clock.background
        if background is None:
            return
        timed = clock.devices.get(device)
        links = timed or one.away
        down = one.down if one.shares_link else 0.0 if links is None else links.up.down
        away = inf if one.lost or timed is None else max(one.frozen, down)
        if clock.transfers is not None:  # up to now it was as it was
            clock.transfers.follow_background(clock.now)
        changed = background.follow(clock.now, device, away, down, one.pace)
        for other, up in sorted(changed):
            if clock.transfers is not None:
                clock.transfers.beside(clock.now, (other, up), background.on((other, up)))
            else:
                self._leave_rest(other, background.on((other, up)), up=up)
        if clock.transfers is not None:
            clock.transfers.follow_background(clock.now)

    def _leave_rest(self, device: int, takings: Sequence[Taking], *, up: bool) -> None:
        """Leave a line to messages but for what background flows take of it from now on."""
        there = self._clock.devices.get(device)
        links = there or self._conditions[device].away
        line = None if links is None else links.up if up else links.down
        if not isinstance(line, TracedLine):
            return  # its device does not come back
        moved = line.beside(self._clock.now, takings)
        if there is not None:
            self._change_lines(device, moved if up else None, None if up else moved)

    def slow(self, device: int, strike: int, fault: Fault | None) -> None:
        """Start a fault that slows a device down or, with None, end it; other such faults stay."""
        one = self._conditions[device]
        if fault is None:
            del one.slow[strike]
        else:
            one.slow[strike] = fault
        pace, now = one.pace, self._clock.now
        one.factor = pace.factor
        is_there = device in self._clock.devices
        if self._clock.transfers is not None:
            if (is_there and self.fetch(device)) or one.shares_link:
                self.freed(device)
        elif one.away is not None:
            one.away.up.change(now, pace.uplink)
            one.away.down.change(now, pace.downlink)
        elif is_there and self.fetch(device):
            timed = self._clock.devices[device]
            both = timed.up.change(now, pace.uplink), timed.down.change(now, pace.downlink)
            self._change_lines(device, *both)

    @abstractmethod
    def lose(self, device: int, fault: Fault) -> None:
        """Make a device silent for good: it is frozen, or cut off."""

    @abstractmethod
    def kill(self, device: int, until: float) -> None:
        """Kill a device, which may come back at a time."""

    def _died(self, device: int, until: float) -> None:
        """Mark a device, still in the clock, as dead until a time; infinity: it never comes back."""
        one = self._conditions[device]
        one.frozen = one.owed = 0.0
        one.incarnation += 1
        one.lost = until == inf
        timed = self._clock.devices[device]
        one.away = None if one.lost else TimedDevice(timed.up, timed.down)

    @abstractmethod
    def revive(self, device: int, fault: Fault) -> float | None:
        """Bring a killed device back, now or as soon as it can come.

        Returns:
            When this is to be tried again; None if that is not needed.
        """

    def settle(self) -> None:
        """Send what others of the system now send, after devices were killed or came back."""

    def server_killed(self, server: int, number: int, *records: FaultChange) -> None:
        """Kill a server, where there are any; see ``Stage``."""
        raise AssertionError("no server is there")

    def unreachable(self) -> Iterator[int]:
        """Yield the devices that are frozen, cut off or lost now."""
        for device, one in self._conditions.items():
            if one.lost or not self.is_reachable(device):
                yield device

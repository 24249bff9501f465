"""What devices have done so far by the virtual clock: seconds of computing, bytes over their lines.

A device *computes* from the beginning of a computation until its drawn time of computing is over, or
until it is interrupted, killed or lost; not while it is frozen, and not while it waits, for time,
parameters or its link.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.checkpoints.stateful import Stateful
from testbed.clock.transfers import Line


@dataclass(slots=True)
class _Computation:
    """A computation under way; in seconds.

    Attributes:
        frozen: how long all freezes of the device last since then.
        until: the end of the last of them.
    """

    began: float
    seconds: float
    frozen: float
    until: float

    def so_far(self, now: float) -> float:
        """Return the seconds for which the device has computed."""
        elapsed = now - self.began - (self.frozen - max(0.0, self.until - now))
        return min(self.seconds, max(0.0, elapsed))


STORED: tuple[type, ...] = (_Computation,)
"""The classes in a state, besides plain values."""


class ComputingTime(Stateful):
    """The seconds for which each device has computed, by its number."""

    def __init__(self) -> None:
        self._over: dict[int, float] = {}
        self._under_way: dict[int, _Computation] = {}

    def begin(self, device: int, now: float, seconds: float) -> None:
        """Start a computation of ``seconds``; it interrupts one that is under way."""
        self.cut(device, now)
        self._under_way[device] = _Computation(now, seconds, 0.0, now)

    def is_under_way(self, device: int, now: float) -> bool:
        """Return True if a device has not computed yet for as long as its computation takes."""
        one = self._under_way.get(device)
        return one is not None and one.so_far(now) < one.seconds

    def freeze(self, device: int, begin: float, until: float) -> None:
        """Stop a device's computation from one time until another, as the device is frozen."""
        if device in self._under_way:
            self._under_way[device].frozen += until - begin
            self._under_way[device].until = until

    def finish(self, device: int) -> None:
        """Add the device's computation, which is over, to its computing time."""
        done = self._under_way.pop(device, None)
        if done is not None:
            self._over[device] = self._over.get(device, 0.0) + done.seconds

    def cut(self, device: int, now: float) -> None:
        """Interrupt the computation under way, if there is one: only its past counts."""
        if device in self._under_way:
            self._over[device] = self.at(device, now)
            del self._under_way[device]

    def at(self, device: int, now: float) -> float:
        """Return the seconds for which a device has computed until now."""
        over, under_way = self._over.get(device, 0.0), self._under_way.get(device)
        return over if under_way is None else over + under_way.so_far(now)


class LineBytes(Stateful):
    """The bytes over uplinks and downlinks that devices have to themselves, by the devices' numbers."""

    def __init__(self) -> None:
        self._gone: dict[int, tuple[int, int]] = {}

    def retire(self, device: int, now: float, lines: Sequence[Line]) -> None:
        """Take over the bytes of a device that is gone; its lines may be used again later."""
        self._gone[device] = self.at(device, now, lines)
        for line in lines:
            line.handed_over = 0

    def at(self, device: int, now: float, lines: Sequence[Line]) -> tuple[int, int]:
        """Return the bytes sent and received by a device until now.

        Args:
            lines: its uplink and its downlink; empty if it is gone.
        """
        up, down = self._gone.get(device, (0, 0))
        return (up + lines[0].left(now), down + lines[1].left(now)) if lines else (up, down)

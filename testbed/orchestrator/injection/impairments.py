"""The combined effect of the active faults on each device, and the agent's requests that apply it.

Faults overlap: a link is down while any fault says so, and a rate is the least that any fault leaves.
The agent is asked only for what changes. Under the virtual clock durations and rates are computed, so
that nothing is slowed down for real.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from testbed.faults.fault import Fault
from testbed.faults.slowdown import Pace, least
from testbed.messages.fault_changes import UNREACHABLE, Kind
from testbed.messages.requests import (
    FreezeDevice,
    LimitProcessors,
    Request,
    SetCorruption,
    SetLink,
    SetPace,
    SetPartition,
    SetRates,
    ThawDevice,
)

Ask: TypeAlias = Callable[[Request], None]
"""Sends a request to the agent."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """The state of a device under faults; without arguments as planned.

    Attributes:
        frozen: whether its processes are frozen.
        down: whether its link is down.
        cut: whether it is cut off from the server.
        uplink, downlink: rates of its link in bit/s; None: as planned.
        factor: what its durations are multiplied by.
        cpus: the number of processors that it may use; None: as planned.
        share: the share of its frames that are damaged, from 0 to 1.
    """

    frozen: bool = False
    down: bool = False
    cut: bool = False
    uplink: int | None = None
    downlink: int | None = None
    factor: float = 1.0
    cpus: float | None = None
    share: float = 0.0

    @classmethod
    def under(cls, faults: Sequence[Fault]) -> "Impairment":
        """Return the combined effect of faults on one device."""
        kinds = {fault.kind for fault in faults}
        pace = Pace.under(faults)
        return cls(
            "freeze" in kinds,
            "stop-network" in kinds,
            "partition" in kinds,
            pace.uplink,
            pace.downlink,
            pace.factor,
            least(fault.cpus for fault in faults),
            max((fault.share for fault in faults), default=0.0),
        )


class Impairments:
    """The impairments of all devices of a run that faults may strike."""

    def __init__(
        self,
        names: Mapping[int, str],
        ask: Ask,
        *,
        wall: bool,
        co_located: int = 0,
        aggregators: Collection[int] = (),
    ) -> None:
        """Start with all devices as planned.

        Args:
            names: the devices' names by number.
            wall: True under the wall clock; under the virtual clock nothing is slowed down for real.
            co_located: the number of workers, the first ones, with a server on their machine. Under the
                virtual clock its link stays up for real: the server has to obey the clock meanwhile.
            aggregators: the numbers of those of the devices that are aggregators. Under the virtual
                clock nothing is done to them, as they have to obey it.
        """
        self._names = names
        self._ask = ask
        self._wall = wall
        self._co_located, self._aggregators = co_located, frozenset(aggregators)
        self._faults: dict[int, list[Fault]] = {number: [] for number in names}
        self._now = dict.fromkeys(names, Impairment())

    def begin(self, fault: Fault, devices: Sequence[int]) -> None:
        """Apply a fault to devices; kills are not handled here."""
        for device in devices:
            if self.is_real(fault, device):
                self._faults[device].append(fault)
        self._settle(devices)

    def is_real(self, fault: Fault, device: int) -> bool:
        """Return True if a fault of a device is carried out, and not only computed by the clock."""
        if self._wall:
            return True
        links_are_real = device >= self._co_located
        return device not in self._aggregators and (links_are_real or fault.kind not in UNREACHABLE)

    def end(self, fault: Fault, devices: Sequence[int]) -> None:
        """Undo a fault on those of the devices on which it is still active."""
        for device in devices:
            if fault in self._faults[device]:
                self._faults[device].remove(fault)
        self._settle(devices)

    def has(self, device: int, kinds: Sequence[Kind], *, for_good: bool = False) -> bool:
        """Return True if such a fault is active on a device; ``for_good``: one without an end."""
        return any(
            fault.kind in kinds and not (for_good and fault.duration is not None)
            for fault in self._faults[device]
        )

    def forget(self, device: int, kinds: Sequence[Kind]) -> None:
        """Undo all faults of these kinds on a device."""
        self._faults[device] = [one for one in self._faults[device] if one.kind not in kinds]
        self._settle([device])

    def _settle(self, devices: Sequence[int]) -> None:
        cut: dict[bool, list[str]] = {False: [], True: []}
        for device in devices:
            before, after = self._now[device], Impairment.under(self._faults[device])
            self._now[device] = after
            if before.cut is not after.cut:
                cut[after.cut].append(self._names[device])
            self._change(device, before, after)
        for is_cut, names in cut.items():
            if names:  # all devices in one request
                self._ask(SetPartition(names, is_cut))

    def _change(self, device: int, before: Impairment, after: Impairment) -> None:
        name = self._names[device]
        if before.frozen is not after.frozen:
            self._ask(FreezeDevice(name) if after.frozen else ThawDevice(name))
        if before.down is not after.down:
            self._ask(SetLink(name, up=not after.down))
        if not self._wall:
            return
        if (before.uplink, before.downlink) != (after.uplink, after.downlink):
            self._ask(SetRates(name, after.uplink, after.downlink))
        if before.cpus != after.cpus:
            self._ask(LimitProcessors(name, after.cpus))
        if before.share != after.share:
            self._ask(SetCorruption(name, after.share))
        if before.factor != after.factor:
            self._ask(SetPace(name, device, after.factor))

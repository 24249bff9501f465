"""A fault, as a rule of the experiment file has it, apart from its devices and its time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self, cast

from testbed.messages.fault_changes import (
    UNREACHABLE,
    Absence,
    AnyFaultChange,
    FaultChange,
    Kind,
    Phase,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: what happens to a device.

    Attributes:
        rule: the rule's place in the experiment file's list, from 0.
        kind: freeze: every process stops where it is; kill: every process ends at once; stop-network:
            the link is down; partition: nothing passes between the devices and the server; slow: more
            time, or a slower link; corrupt: some of the uplink's frames are damaged.
        duration: seconds of the run's clock until it is over; None: for good.
        factor: slow: the factor by which the durations of computing and waiting are multiplied.
        uplink, downlink: slow: rates of the link in bit/s; None: as before.
        cpus: slow: processors that the device may use; None: as before.
        share: corrupt: the share of the frames, from 0 to 1.
        away: kill: why the device is not there, if that is no fault.
    """

    rule: int
    kind: Kind
    duration: float | None = None
    factor: float = 1.0
    uplink: int | None = None
    downlink: int | None = None
    cpus: float | None = None
    share: float = 0.0
    away: Absence = ""

    @property
    def options(self) -> Mapping[str, object]:
        """The options that are given: those that are not at their defaults, by name."""
        nothing = Fault(self.rule, self.kind, self.duration)
        fields = asdict(self)
        return {key: value for key, value in fields.items() if value != getattr(nothing, key)}

    @property
    def changes_link(self) -> bool:
        """True if the link of the device's machine is down, slower or damages frames meanwhile."""
        slower = self.uplink is not None or self.downlink is not None
        return slower or self.kind in (*UNREACHABLE, "corrupt")

    @classmethod
    def of_record(cls, record: AnyFaultChange) -> Self:
        """Return the fault that a record of its beginning or end is about."""
        return cls(
            record["rule"],
            record["fault"],
            record["duration"],
            factor=record.get("factor", 1.0),
            uplink=record.get("uplink"),
            downlink=record.get("downlink"),
            cpus=record.get("cpus"),
            share=record.get("share", 0.0),
            away=record.get("away", ""),
        )

    def record(
        self, phase: Phase, devices: Sequence[int], time: float, iteration: int
    ) -> FaultChange:
        """Return the record of the fault's beginning or end, for the run's log.

        Args:
            devices: the devices that it strikes.
            time: in seconds of the run's clock.
            iteration: the model's version.
        """
        record = {
            "fault": self.kind,
            "phase": phase,
            "rule": self.rule,
            "devices": list(devices),
            "time": time,
            "iteration": iteration,
            "duration": self.duration,
            **self.options,
        }
        return cast("FaultChange", record)

"""The rules of a run's faults: the devices that each strikes, with what, and when.

The plan makes them from the experiment file, with numbers in place of names and files, and hands them
to every process of the run. Devices that arrive and leave are in them, too: their fault is a kill with
``away``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from testbed.faults.fault import Fault


@dataclass(frozen=True, slots=True)
class EachPush:
    """After each push of a device, with a probability."""

    probability: float
    kind: Literal["pushes"] = "pushes"


@dataclass(frozen=True, slots=True)
class Moment:
    """Once, at a time in seconds of training."""

    time: float
    kind: Literal["moment"] = "moment"


@dataclass(frozen=True, slots=True)
class Version:
    """Once, at a version of the model."""

    iteration: int
    kind: Literal["version"] = "version"


@dataclass(frozen=True, slots=True)
class Intervals:
    """Again and again; from one's end to the next is exponential, with a mean in seconds."""

    mean_time: float
    kind: Literal["intervals"] = "intervals"


@dataclass(frozen=True, slots=True)
class Laws:
    """When devices arrive, leave and return: sections as ``testbed.durations.Durations.of`` takes them.

    None where there is none.
    """

    arrives: Mapping[str, Any] | None
    leaves: Mapping[str, Any] | None
    returns: Mapping[str, Any] | None
    kind: Literal["laws"] = "laws"

    @property
    def brings_back(self) -> bool:
        """True if a device is away for a time that is drawn."""
        return self.arrives is not None or self.returns is not None


@dataclass(frozen=True, slots=True)
class TracedFault:
    """A row of a trace: a fault of one device at a time in seconds, or at a version."""

    time: float | None
    iteration: int | None
    device: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class FaultTrace:
    """At the times that the rows of a file say."""

    rows: Sequence[TracedFault]
    kind: Literal["trace"] = "trace"


When: TypeAlias = EachPush | Moment | Version | Intervals | Laws | FaultTrace


@dataclass(frozen=True, slots=True)
class FaultRule:
    """A rule of a run's faults.

    Attributes:
        stream: the name of its random streams. It is that of its place in its own list, so that a rule
            at a list's end changes no other rule's draws.
        fault: its fault; of a trace, what rows are that do not say otherwise.
        devices: the numbers of the devices that it strikes.
        when: at which moments.
    """

    stream: str
    fault: Fault
    devices: Sequence[int]
    when: When

    @property
    def brings_back(self) -> bool:
        """True if laws draw for how long devices are away."""
        return isinstance(self.when, Laws) and self.when.brings_back

    def faults(self) -> Iterator[tuple[Sequence[int], Fault]]:
        """Yield devices and a fault, for its own fault and for each row of a trace."""
        yield self.devices, self.fault
        if isinstance(self.when, FaultTrace):
            yield from (((row.device,), row.fault) for row in self.when.rows)

    def faults_of(self, device: int) -> list[Fault]:
        """Return the faults that it may strike a device with; of drawn absences, without durations."""
        if isinstance(self.when, FaultTrace):
            return [row.fault for row in self.when.rows if row.device == device]
        return [self.fault] * (device in self.devices)

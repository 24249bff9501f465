"""The experiment file's list of faults: the devices they strike, when, how, and for how long.

Each fault is checked here by itself. ``testbed.experiment.fault_conflicts`` checks it against the rest
of the file (such as its devices), and ``testbed.planning.fault_rules`` chooses the devices it strikes.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_serializer,
    model_validator,
)

from testbed.device_names import is_aggregator, is_server
from testbed.experiment.alternatives import ChosenByKey, ChosenByValue, ShortForm
from testbed.experiment.sections.section import Section, SparseSection, as_tuple
from testbed.experiment.sections.timing import file_beside
from testbed.messages.fault_changes import KINDS
from testbed.units import Duration, Rate, Share


class WhoByName(Section):
    """Each worker by itself, or the parameter server."""

    name: Literal["each", "server"] = Field(
        description="each: every worker by itself; server: the parameter server, of several the first."
    )

    @model_serializer
    def _short_form(self) -> str:
        return self.name


class WhoByNumber(Section):
    """A number of workers, chosen by the seed."""

    number: int = Field(ge=1, description="The number of workers.", examples=[5])


class WhoByShare(Section):
    """A share of the workers, chosen by the seed."""

    share: Share = Field(description="The share of the workers.", examples=["10%"])


class OfClass(Section):
    """The workers of a device class."""

    class_: str = Field(
        alias="class",
        min_length=1,
        description="The name of a class of devices.classes.",
        examples=["slow"],
    )

    @model_serializer
    def _by_alias(self) -> dict[str, str]:
        return {"class": self.class_}


class WhoByDevices(Section):
    """Workers that are listed, or parameter servers, or aggregators."""

    devices: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1,
        description="The workers' names, or those of parameter servers, or of aggregators.",
        examples=[["worker-3", "worker-7"], ["server-1"], ["aggregator-0"]],
    )


WhoSpec: TypeAlias = Annotated[
    WhoByName | WhoByNumber | WhoByShare | OfClass | WhoByDevices,
    ChosenByKey(
        "must be each, server, or one of number, share, class and devices; for example "
        "`who: {share: 10%}`"
    ),
    ShortForm(("each", "server")),
]
"""The devices that a fault strikes."""


class AfterPushes(Section):
    """After a device's pushes, at random."""

    probability: Share = Field(
        description="The probability after each push of a device.", examples=[0.0004]
    )


class AtTime(Section):
    """Once, at a time."""

    time: Duration = Field(description="The time, since training began.", examples=["20s"])


class AtIteration(Section):
    """Once, at a version of the model."""

    iteration: int = Field(ge=1, description="The model's number of updates.", examples=[5000])


def _positive(value: float) -> float:
    if value == 0:
        raise ValueError("must be more than 0: faults would follow each other at once")
    return value


class Repeatedly(Section):
    """Again and again, at random times."""

    mean_time: Annotated[Duration, AfterValidator(_positive)] = Field(
        description="The mean of the times from one fault's end to the beginning of the next, which "
        "are exponential; each device has its own, and the devices of a partition have one.",
        examples=["60s"],
    )


class ByTrace(Section):
    """As a file says."""

    trace: Annotated[str, AfterValidator(file_beside)] = Field(
        min_length=1,
        description="A CSV file with the columns time (in seconds) or iteration, device and, if they "
        "differ, kind and lasting (in seconds); relative to the experiment file's folder.",
        examples=["struck.csv"],
    )


WhenSpec: TypeAlias = Annotated[
    AfterPushes | AtTime | AtIteration | Repeatedly | ByTrace,
    ChosenByKey(
        "must be one of probability, time, iteration, mean_time and trace; for example "
        "`when: {time: 20s}`"
    ),
]
"""The moments at which a fault strikes."""


class PlainFault(Section):
    """A fault without options."""

    kind: Literal["freeze", "kill", "stop-network", "partition"] = Field(
        description="freeze: the device stops, and its connection stays open and silent; kill: its "
        "processes end, and if it comes back it starts from the beginning; stop-network: its link is "
        "down; partition: nothing passes between these devices, as a set, and the server."
    )

    @model_serializer
    def _short_form(self) -> str:
        return self.kind


class SlowFault(SparseSection):
    """A fault that makes the device's computing and waiting take longer, or its link slower."""

    kind: Literal["slow"]
    factor: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Factor of the durations of computing and waiting that begin during the fault.",
        examples=[5],
    )
    uplink: Rate | None = Field(default=None, description="The uplink's rate during the fault.")
    downlink: Rate | None = Field(default=None, description="The downlink's rate during the fault.")
    cpus: float | None = Field(
        default=None,
        ge=0.01,
        description="Processors that the device may use during the fault; docker, wall clock.",
    )

    @model_validator(mode="after")
    def _slows(self) -> "SlowFault":
        if len(self.model_dump()) == 1:
            raise ValueError(
                "'slow' needs factor or uplink or downlink or cpus; for example "
                "`how: {kind: slow, factor: 5}`"
            )
        return self


class CorruptFault(Section):
    """A fault that damages some of what the device sends."""

    kind: Literal["corrupt"]
    share: Share = Field(
        description="The share of the device's frames; wall clock, and needs the kernel's netem.",
        examples=["1%"],
    )


HowSpec: TypeAlias = Annotated[
    PlainFault | SlowFault | CorruptFault, ChosenByValue("kind"), ShortForm(KINDS, key="kind")
]
"""The effect of a fault on the devices that it strikes."""


class ClassFaultSpec(Section):
    """A fault of the devices of a class."""

    when: WhenSpec = Field(
        description="When it strikes: a mapping with one key.", examples=[{"probability": 0.0004}]
    )
    how: HowSpec = Field(
        description="What happens: a kind, or a mapping with its options.", examples=["freeze"]
    )
    lasting: Duration | None = Field(
        default=None,
        description="The time after which the device goes on or, if it was killed, is started again; "
        "default (null): never. For the server, the default is at once.",
        examples=["30s"],
    )

    @model_validator(mode="after")
    def _is_possible(self) -> "ClassFaultSpec":
        if text := self._impossible():
            raise ValueError(text)
        return self

    def _impossible(self) -> str | None:
        """Return what is wrong with the fault and what to do, or None."""
        if self.lasting == 0:
            return "lasting must be more than 0: nothing would happen"
        if self.how.kind == "partition" and isinstance(self.when, AfterPushes):
            return (
                "a partition is of a set, and pushes are of one device: give it a time, or use "
                "`how: stop-network`"
            )
        return None


class _Victims(Section):
    # A section of its own, because the file has this key before those of ClassFaultSpec.
    who: WhoSpec = Field(
        default_factory=lambda: WhoByName(name="each"),
        description="The devices that it strikes: each (every worker by itself; default), server, or "
        "a mapping with one of number, share, class and devices.",
        examples=[{"share": "10%"}],
    )


class FaultSpec(ClassFaultSpec, _Victims):
    """A fault: the devices that it strikes, when, how and for how long."""

    @property
    def of_server(self) -> bool:
        """True if the fault strikes parameter servers."""
        if isinstance(self.who, WhoByDevices):
            return all(map(is_server, self.who.devices))
        return self.who == WhoByName(name="server")

    @property
    def of_aggregator(self) -> bool:
        """True if the fault strikes aggregators."""
        return isinstance(self.who, WhoByDevices) and all(map(is_aggregator, self.who.devices))

    def _impossible(self) -> str | None:
        if isinstance(self.when, ByTrace) and self.who != WhoByName(name="each"):
            return "a trace names the devices: take 'who' out"
        if self.of_aggregator:
            return super()._impossible() or self._impossible_of_aggregator()
        if not self.of_server:
            return self._of_two_kinds() or super()._impossible()
        if self.how.kind != "kill":
            return f"a server cannot have '{self.how.kind}': use `how: kill`"
        if isinstance(self.when, AfterPushes):
            return "a server pushes nothing: give a time or an iteration"
        return None

    def _of_two_kinds(self) -> str | None:
        """Return that devices are of several kinds, and what to do, if they are."""
        devices = self.who.devices if isinstance(self.who, WhoByDevices) else ()
        if any(map(is_server, devices)):
            others = "aggregators" if any(map(is_aggregator, devices)) else "workers"
            return f"it strikes servers and {others}: give each a fault of its own"
        if any(map(is_aggregator, devices)):
            return "it strikes aggregators and workers: give each a fault of its own"
        return None

    def _impossible_of_aggregator(self) -> str | None:
        if isinstance(self.when, AfterPushes):
            return "an aggregator is not struck after pushes: give a time or an iteration"
        if isinstance(self.how, SlowFault) and self.how.factor is not None:
            return (
                "an aggregator draws no durations that a factor could change: give it an uplink or a "
                "downlink, as in `how: {kind: slow, uplink: 1mbit}`"
            )
        return None

"""The experiment file's list of faults: the devices they strike, when, how, and for how long.

Each fault is checked here by itself. ``testbed.experiment.fault_conflicts`` checks it against the rest
of the file (such as its devices), and ``testbed.faults.resolving`` chooses the devices it strikes.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from testbed.experiment.sections.section import Section, as_tuple
from testbed.experiment.sections.timing import file_beside
from testbed.experiment.short_form import ShortForm
from testbed.experiment.units import Duration, Rate, Share
from testbed.faults.fault import KINDS, Kind

ALL = ("each", "server")
_SLOW = ("factor", "uplink", "downlink", "cpus")


class _Sparse(Section):
    """A section that is written back without the keys that were not given."""

    @model_serializer(mode="wrap")
    def _without_the_rest(self, handler: SerializerFunctionWrapHandler) -> Any:
        data: dict[str, Any] = handler(self)
        return {
            self._key(key): value for key, value in data.items() if getattr(self, key) is not None
        }

    @staticmethod
    def _key(name: str) -> str:
        return name.rstrip("_")

    def given(self) -> dict[str, Any]:
        """Return the values that were given, in base units, by the file's keys."""
        values = {key: getattr(self, key) for key in type(self).model_fields}
        return {self._key(key): value for key, value in values.items() if value is not None}


class WhoSpec(_Sparse):
    """The devices that a fault strikes; exactly one key is given."""

    name: Literal["each", "server"] | None = Field(
        default=None,
        description="each: every worker by itself; server: the parameter server.",
    )
    number: int | None = Field(
        default=None, ge=1, description="So many workers, chosen by the seed.", examples=[5]
    )
    share: Share | None = Field(
        default=None, description="This share of the workers, chosen by the seed.", examples=["10%"]
    )
    class_: str | None = Field(
        default=None,
        alias="class",
        min_length=1,
        description="The workers of a class of devices.classes, by its name.",
        examples=["slow"],
    )
    devices: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] | None = Field(
        default=None,
        min_length=1,
        description="These workers, by their names.",
        examples=[["worker-3", "worker-7"]],
    )

    @model_validator(mode="after")
    def _one(self) -> "WhoSpec":
        if len(self.given()) != 1:
            raise ValueError(
                "must be each, server, or one of number, share, class and devices; for example "
                "`who: {share: 10%}`"
            )
        return self


class WhenSpec(_Sparse):
    """The moments at which a fault strikes; exactly one key is given."""

    probability: Share | None = Field(
        default=None,
        description="After each push of a device, with this probability.",
        examples=[0.0004],
    )
    time: Duration | None = Field(
        default=None, description="At this time, since training began.", examples=["20s"]
    )
    iteration: int | None = Field(
        default=None, ge=1, description="When the model has had so many updates.", examples=[5000]
    )
    mean_time: Duration | None = Field(
        default=None,
        description="Again and again: the times from one fault's end to the next one's beginning are "
        "exponential with this mean, for each device by itself; of a partition, for the set.",
        examples=["60s"],
    )
    trace: str | None = Field(
        default=None,
        min_length=1,
        description="As a CSV file says, in columns time (in seconds) or iteration, device and, if "
        "they differ, kind and lasting (in seconds); sought beside the experiment file.",
    )

    @field_validator("mean_time")
    @classmethod
    def _positive(cls, value: float | None) -> float | None:
        if value == 0:
            raise ValueError("must be more than 0: faults would follow each other at once")
        return value

    @field_validator("trace")
    @classmethod
    def _found(cls, file: str | None, info: ValidationInfo) -> str | None:
        return file_beside(file, info)

    @model_validator(mode="after")
    def _one(self) -> "WhenSpec":
        if len(self.given()) != 1:
            raise ValueError(
                "must be one of probability, time, iteration, mean_time and trace; for example "
                "`when: {time: 20s}`"
            )
        return self


class HowSpec(_Sparse):
    """The effect of a fault on the devices that it strikes."""

    kind: Kind = Field(
        description="freeze: the device stops where it stands, its connection stays open and silent; "
        "kill: its processes end, and if it comes back it begins anew; stop-network: its link is "
        "down; partition: nothing passes between these devices, as a set, and the server; slow: it "
        "takes longer, or its link is slower; corrupt: some of what it sends is damaged on its way."
    )
    factor: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="slow: what durations of computing and waiting that begin meanwhile are "
        "multiplied by.",
        examples=[5],
    )
    uplink: Rate | None = Field(default=None, description="slow: the uplink's rate meanwhile.")
    downlink: Rate | None = Field(default=None, description="slow: the downlink's rate meanwhile.")
    cpus: float | None = Field(
        default=None,
        ge=0.01,
        description="slow: processors that the device may use meanwhile; docker, wall clock.",
    )
    share: Share | None = Field(
        default=None,
        description="corrupt: of the device's frames; wall clock, and needs the kernel's netem.",
        examples=["1%"],
    )

    @model_validator(mode="after")
    def _belongs(self) -> "HowSpec":
        given = [key for key in (*_SLOW, "share") if getattr(self, key) is not None]
        own = {"slow": _SLOW, "corrupt": ("share",)}.get(self.kind, ())
        for key in given:
            if key not in own:
                owner = "corrupt" if key == "share" else "slow"
                raise ValueError(
                    f"'{key}' is an option of '{owner}', and the kind is '{self.kind}'"
                )
        if own and not given:
            example = "factor: 5" if self.kind == "slow" else "share: 1%"
            raise ValueError(
                f"'{self.kind}' needs {' or '.join(own)}; for example "
                f"`how: {{kind: {self.kind}, {example}}}`"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_the_rest(self, handler: SerializerFunctionWrapHandler) -> Any:
        given = self.given()
        data: dict[str, Any] = handler(self)
        return self.kind if len(given) == 1 else {key: data[key] for key in given}


class ClassFaultSpec(Section):
    """A fault of the devices of a class."""

    when: WhenSpec = Field(
        description="When it strikes: a mapping with one key.", examples=[{"probability": 0.0004}]
    )
    how: Annotated[HowSpec, ShortForm(KINDS, key="kind")] = Field(
        description="What happens: a kind, or a mapping with its options.", examples=["freeze"]
    )
    lasting: Duration | None = Field(
        default=None,
        description="How long, after which the device goes on; default (null): for good. Of the "
        "server: until it is started again; default: at once.",
        examples=["30s"],
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> "ClassFaultSpec":
        if text := self._nonsense():
            raise ValueError(text)
        return self

    def _nonsense(self) -> str | None:
        if self.lasting == 0:
            return "lasting must be more than 0: nothing would happen"
        if self.how.kind == "partition" and self.when.probability is not None:
            return (
                "a partition is of a set, and pushes are of one device: give it a time, or use "
                "`how: stop-network`"
            )
        return None

    def plain(self) -> dict[str, Any]:
        """Return the fault as JSON values in base units."""
        return {"when": self.when.given(), "how": self.how.given(), "lasting": self.lasting}


class FaultSpec(ClassFaultSpec):
    """A fault: the devices that it strikes, when, how and for how long."""

    who: Annotated[WhoSpec, ShortForm(ALL)] = Field(
        default_factory=lambda: WhoSpec(name="each"),
        description="Whom it strikes: each (every worker by itself; default), server, or a mapping "
        "with one of number, share, class and devices.",
        examples=[{"share": "10%"}],
    )

    @model_serializer(mode="wrap")
    def _who_first(self, handler: SerializerFunctionWrapHandler) -> Any:
        data: dict[str, Any] = handler(self)
        who = self.who.name or data["who"]
        return {"who": who, **{key: value for key, value in data.items() if key != "who"}}

    @property
    def of_server(self) -> bool:
        """True if the fault strikes the parameter server."""
        return self.who.name == "server"

    def _nonsense(self) -> str | None:
        if self.when.trace is not None and self.who.name != "each":
            return "a trace names the devices: take 'who' out"
        if not self.of_server:
            return super()._nonsense()
        if self.how.kind != "kill":
            return f"the server cannot have '{self.how.kind}': use `how: kill`"
        if self.when.probability is not None:
            return "the server pushes nothing: give a time or an iteration"
        return None

    def plain(self) -> dict[str, Any]:
        """Return the fault as JSON values in base units."""
        lasting = self.lasting or 0.0 if self.of_server else self.lasting
        return super().plain() | {"who": self.who.given(), "lasting": lasting}

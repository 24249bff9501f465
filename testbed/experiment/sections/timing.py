"""The sections of an experiment file that say how long something takes: computing, waiting, messages.

Each distribution of ``compute`` and ``waiting`` is a section with its own options; all have classes of
devices and changes.
"""

import functools
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from testbed.durations.device_durations import DeviceDurations
from testbed.durations.laws import ENTRY_POINTS, LAWS, Law, law_named
from testbed.errors import SpecError
from testbed.experiment.alternatives import ChosenByValue, OrOwn
from testbed.experiment.sections.section import Section, as_tuple, not_whole, path_in
from testbed.plugins.names import is_plugin
from testbed.units import Duration, Share

TRACES = "traces"
"""Key of the validation context: the folder against which relative traces are resolved."""

_SMALLEST = 0.001
"""The smallest variation other than 0; below it a gamma's shape grows without bound."""


def file_beside(file: str, info: ValidationInfo) -> str:
    """Return the absolute path of a trace; a relative one is in the folder that the context names.

    Raises:
        ValueError: there is no such file.
    """
    folder: Path | None = (info.context or {}).get(TRACES)
    if folder is None and Path(file).is_absolute():
        return file
    if folder is not None and (path := path_in(folder, file)) is not None and path.is_file():
        return str(path)
    raise ValueError(f"there is no file '{file}'")


class ClassSpec(Section):
    """A class of devices whose durations are longer or shorter by a factor."""

    share: Share = Field(
        description="Share of the devices in this class; the shares of all classes add up to 100%.",
        examples=["30%"],
    )
    factor: float = Field(
        gt=0,
        le=1e6,
        description="Factor of this class's mean. For classes that send 100 : 10 : 1 times the "
        "updates, as AdaComp's, the factors are 1, 10 and 100: the slowest has the largest.",
        examples=[10],
    )


class ChangeSpec(Section):
    """A change of the durations during training."""

    at: Duration = Field(
        description="Time of the change, since training began.",
        examples=["160s"],
    )
    share: Share = Field(
        description="Share of the devices that change, chosen by the seed; changes of the same "
        "share reach the same devices.",
        examples=["50%"],
    )
    factor: float = Field(
        gt=0,
        le=1e6,
        description="Factor of their durations from then on; it multiplies the factors of earlier "
        "changes: 5 is five times slower; 0.2 undoes that.",
        examples=[5],
    )


class DurationSpec(Section):
    """The durations of a device, each drawn from the device's own stream."""

    distribution: str
    classes: Annotated[tuple[ClassSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Slow and fast classes of devices, assigned by a shuffle that depends on the "
        "seed and is the same for computing and waiting; default: none.",
        examples=[[{"share": "50%", "factor": 1}, {"share": "50%", "factor": 10}]],
    )
    changes: Annotated[tuple[ChangeSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Changes during training; default: none.",
        examples=[[{"at": "160s", "share": "50%", "factor": 5}]],
    )

    @field_validator("classes")
    @classmethod
    def _whole(cls, value: tuple[ClassSpec, ...]) -> tuple[ClassSpec, ...]:
        if text := not_whole(one.share for one in value):
            raise ValueError(text)
        return value

    @model_serializer(mode="wrap")
    def _lists_last(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        data: dict[str, object] = handler(self)
        lists = {key: data.pop(key) for key in ("classes", "changes")}
        return data | {key: value for key, value in lists.items() if value}

    @property
    def takes_time(self) -> bool:
        """True if a duration may be more than 0."""
        raise NotImplementedError


class DrawnSpec(DurationSpec):
    """Durations drawn from a law with a mean."""

    mean: Duration = Field(
        default=0.0,
        description="Mean over devices and time, before classes and changes; default 0.",
    )

    @property
    def takes_time(self) -> bool:
        return self.mean > 0


class PlainSpec(DrawnSpec):
    """A law that has only a mean."""

    distribution: Literal["constant", "uniform", "exponential"] = Field(
        description="constant: always the mean; uniform: from 0 to 2 means; exponential."
    )


class ShiftedExponentialSpec(DrawnSpec):
    """The law mean × (1 − alpha + alpha·Exp(1)), as in DBW."""

    distribution: Literal["shifted-exponential"]
    alpha: float = Field(ge=0, le=1, description="α, the random part of the mean.", examples=[0.3])


class ParetoSpec(DrawnSpec):
    """The Pareto law, which is heavy-tailed."""

    distribution: Literal["pareto"]
    shape: float = Field(
        gt=1,
        le=1000,
        description="The exponent a of P(T > t) ∝ t^−a; the variance is finite above 2.",
        examples=[2.5],
    )


class GammaSpec(DrawnSpec):
    """The gamma law."""

    distribution: Literal["gamma"]
    variation: float = Field(
        ge=_SMALLEST,
        le=10,
        description="V, standard deviation ÷ mean; the shape is 1/V².",
        examples=[0.1],
    )


def _possible(value: float) -> float:
    if 0 < value < _SMALLEST:
        raise ValueError(f"must be 0 or at least {_SMALLEST}, not {value!r}")
    return value


class CvbSpec(DrawnSpec):
    """Gamma times on machines that may differ, as in Gap-Aware."""

    distribution: Literal["cvb"]
    task_variation: Annotated[float, AfterValidator(_possible)] = Field(
        default=0.1,
        ge=0,
        le=10,
        description="V of a device's own times; default 0.1, as in Gap-Aware.",
    )
    machine_variation: Annotated[float, AfterValidator(_possible)] = Field(
        default=0.0,
        ge=0,
        le=10,
        description="V of the devices' means, which are drawn once; default 0, all alike; "
        "Gap-Aware's heterogeneous machines have 0.6.",
    )


class TraceSpec(DurationSpec):
    """The durations in a file, which has its own mean."""

    distribution: Literal["trace"]
    file: Annotated[str, AfterValidator(file_beside)] = Field(
        description="A CSV or Parquet file with a column seconds and, unless its rows belong to no "
        "device in particular, a column device; relative to the experiment file's folder.",
        examples=["trace.csv"],
    )
    order: Literal["sequence", "random"] = Field(
        default="sequence",
        description="sequence: in file order and from the start again (default); random: drawn with "
        "replacement.",
    )

    @property
    def takes_time(self) -> bool:
        return True


@functools.cache
def _section_of(law: type[Law]) -> type[DrawnSpec]:
    """Return the section of a plug-in's law: its fields are options, which it checks itself, too."""
    own: dict[str, Any] = {
        one.name: (one.type, ... if one.default is MISSING else one.default)
        for one in fields(law)
        if one.name != "mean"
    }

    def check(section: DrawnSpec) -> DrawnSpec:
        made = law(**{one.name: getattr(section, one.name) for one in fields(law)})
        try:
            first, again = (
                DeviceDurations(made, np.random.default_rng(0), 1.0, ()).sample(0.0)
                for _ in range(2)
            )
        except SpecError as error:
            raise ValueError(str(error)) from None
        if first != again:
            raise ValueError(
                f"{law.__name__}.sample() draws {first:.6g} and then {again:.6g} from streams that are "
                "alike, so that runs would differ: let it draw from its argument only"
            )
        return section

    validators: dict[str, Any] = {"check": model_validator(mode="after")(check)}
    return create_model(
        law.__name__, __base__=DrawnSpec, __validators__=validators, distribution=(str, ...), **own
    )


def plugin_section(name: str) -> type[DrawnSpec] | None:
    """Return the section of a plug-in's law; None if the name is none of a plug-in.

    Raises:
        SpecError: as ``testbed.durations.laws.law_named``.
    """
    return _section_of(law_named(name)) if is_plugin(name, LAWS, ENTRY_POINTS) else None


_Durations: TypeAlias = (
    PlainSpec | ShiftedExponentialSpec | ParetoSpec | GammaSpec | CvbSpec | TraceSpec
)
ComputeSpec: TypeAlias = Annotated[
    _Durations,
    ChosenByValue("distribution", default="constant"),
    OrOwn("distribution", plugin_section),
]
"""The time that a device takes to compute a gradient."""
WaitingSpec: TypeAlias = Annotated[
    _Durations,
    ChosenByValue("distribution", default="exponential"),
    OrOwn("distribution", plugin_section),
]
"""The time that a worker waits between computing and pushing."""


class CostsSpec(Section):
    """The processor time that messages cost a server or an aggregator."""

    message: Duration = Field(
        default=0.0,
        description="Each message that a server receives or sends: a push, a question for parameters, "
        "parameters; default 0.",
        examples=["50us"],
    )
    byte: Duration = Field(
        default=0.0, description="Each byte of a message; default 0.", examples=["0.3ns"]
    )
    apply: Duration = Field(
        default=0.0,
        description="An update that a server takes in, for each parameter that the server holds; "
        "default 0.",
        examples=["1ns"],
    )

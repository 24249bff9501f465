"""The sections of an experiment file that say how long something takes.

``compute`` and ``waiting`` have the same keys. An option belongs to one distribution and is refused
with any other; options that do not apply are not written back.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from testbed.experiment.sections.section import Section, as_tuple, not_whole
from testbed.experiment.units import Duration, Share

TRACES = "traces"
"""Key of the validation context: the folder against which relative traces are resolved."""

Distribution: TypeAlias = Literal[
    "constant",
    "uniform",
    "exponential",
    "shifted-exponential",
    "pareto",
    "gamma",
    "cvb",
    "trace",
]
_OPTIONS: dict[str, tuple[str, ...]] = {
    "shifted-exponential": ("alpha",),
    "pareto": ("shape",),
    "gamma": ("variation",),
    "cvb": ("task_variation", "machine_variation"),
    "trace": ("file", "order"),
}
"""The options of each distribution that has any; all distributions but ``trace`` also have a mean."""
_DEFAULTS = {"task_variation": 0.1, "machine_variation": 0.0, "order": "sequence"}
_EXAMPLES = {"alpha": "0.3", "shape": "2.5", "variation": "0.1", "file": "trace.csv"}
"""An example for each option that has no default."""
_SMALLEST = 0.001
"""The smallest variation other than 0; below it a gamma's shape grows without bound."""
_DISTRIBUTIONS = (
    "constant: always the mean; uniform: from 0 to 2 means; exponential; shifted-exponential: mean × "
    "(1 − alpha + alpha·Exp(1)), as in DBW; pareto: heavy-tailed; gamma; cvb: gamma times on machines "
    "that may differ, as in Gap-Aware; trace: a file's."
)


def file_beside(file: str | None, info: ValidationInfo) -> str | None:
    """Return the absolute path of a trace; a relative one is in the folder that the context names.

    Raises:
        ValueError: there is no such file.
    """
    folder: Path | None = (info.context or {}).get(TRACES)
    if file is None or (folder is None and Path(file).is_absolute()):
        return file
    if folder is not None:
        path = (folder / Path(file).expanduser()).resolve()
        if path.is_file():
            return str(path)
    raise ValueError(f"there is no file '{file}'")


class ClassSpec(Section):
    """A class of devices whose durations are longer or shorter by a factor."""

    share: Share = Field(
        description="Share of the devices in this class; all classes' add up to 100%.",
        examples=["30%"],
    )
    factor: float = Field(
        gt=0,
        le=1e6,
        description="What the mean is multiplied by in this class. For classes that send 100 : 10 : 1 "
        "times the updates, as AdaComp's, the factors are 1, 10 and 100: the slowest has the largest.",
        examples=[10],
    )


class ChangeSpec(Section):
    """A change of the durations during training."""

    at: Duration = Field(
        description="When, since training began.",
        examples=["160s"],
    )
    share: Share = Field(
        description="Share of the devices that it reaches, chosen by the seed; changes of the same "
        "share reach the same devices.",
        examples=["50%"],
    )
    factor: float = Field(
        gt=0,
        le=1e6,
        description="What their durations are multiplied by from then on, beside every earlier "
        "change: 5 is five times slower; 0.2 takes that back.",
        examples=[5],
    )


class DurationSpec(Section):
    """A duration on a device, drawn anew each time from the device's own stream."""

    distribution: Distribution = Field(default="constant", description=_DISTRIBUTIONS)
    mean: Duration = Field(
        default=0.0,
        description="Mean over devices and time, before classes and changes; default 0. Not of a "
        "trace, which has its own.",
    )
    alpha: float | None = Field(
        default=None,
        validate_default=True,
        ge=0,
        le=1,
        description="shifted-exponential: α, the random part of the mean.",
    )
    shape: float | None = Field(
        default=None,
        validate_default=True,
        gt=1,
        le=1000,
        description="pareto: the exponent a of P(T > t) ∝ t^−a; the variance is finite above 2.",
    )
    variation: float | None = Field(
        default=None,
        validate_default=True,
        ge=_SMALLEST,
        le=10,
        description="gamma: V, standard deviation ÷ mean; the shape is 1/V².",
    )
    task_variation: float | None = Field(
        default=None,
        validate_default=True,
        ge=0,
        le=10,
        description="cvb: V of a device's own times; default 0.1, as in Gap-Aware.",
    )
    machine_variation: float | None = Field(
        default=None,
        validate_default=True,
        ge=0,
        le=10,
        description="cvb: V of the devices' means, which are drawn once; default 0, all alike; "
        "Gap-Aware's heterogeneous machines have 0.6.",
    )
    file: str | None = Field(
        default=None,
        validate_default=True,
        description="trace: a CSV or Parquet file with a column seconds and, unless its rows are of "
        "no device in particular, a column device; sought beside the experiment file.",
    )
    order: Literal["sequence", "random"] | None = Field(
        default=None,
        validate_default=True,
        description="trace: sequence, in file order and from the start again (default), or random, "
        "drawn with replacement.",
    )
    classes: Annotated[tuple[ClassSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Classes of devices, slow and fast ones; who is in which is a shuffle by the "
        "seed, the same for computing and waiting; default: none.",
        examples=[[{"share": "50%", "factor": 1}, {"share": "50%", "factor": 10}]],
    )
    changes: Annotated[tuple[ChangeSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="What changes while training goes on; default: nothing.",
        examples=[[{"at": "160s", "share": "50%", "factor": 5}]],
    )

    @field_validator("mean")
    @classmethod
    def _has_a_mean(cls, value: float, info: ValidationInfo) -> float:
        if info.data.get("distribution") == "trace":
            raise ValueError("is the trace's own: remove it")
        return value

    # Runs for missing options too, to fill in the default or to report that one is missing.
    @field_validator(*_DEFAULTS, *_EXAMPLES, mode="before")
    @classmethod
    def _belongs(cls, value: object, info: ValidationInfo) -> object:
        chosen, option = info.data.get("distribution"), str(info.field_name)
        if chosen is None:  # reported by its own field
            return value
        if option in _OPTIONS.get(chosen, ()):
            value = _DEFAULTS.get(option) if value is None else value
            if value is None:
                example = f"{option}: {_EXAMPLES[option]}"
                raise ValueError(f"is missing: '{chosen}' needs it; for example `{example}`")
        elif value is not None:
            owner = next(name for name, options in _OPTIONS.items() if option in options)
            raise ValueError(
                f"is an option of '{owner}', and the distribution is '{chosen}': remove it, or "
                f"write `distribution: {owner}`"
            )
        return value

    @field_validator("task_variation", "machine_variation")
    @classmethod
    def _possible(cls, value: float | None) -> float | None:
        if value is not None and 0 < value < _SMALLEST:
            raise ValueError(f"must be 0 or at least {_SMALLEST}, not {value!r}")
        return value

    @field_validator("file")
    @classmethod
    def _found(cls, file: str | None, info: ValidationInfo) -> str | None:
        return file_beside(file, info)

    @field_validator("classes")
    @classmethod
    def _whole(cls, value: tuple[ClassSpec, ...]) -> tuple[ClassSpec, ...]:
        if text := not_whole(one.share for one in value):
            raise ValueError(text)
        return value

    @model_serializer(mode="wrap")
    def _without_the_rest(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if key in self._applying()}

    def _applying(self) -> tuple[str, ...]:
        mean = () if self.distribution == "trace" else ("mean",)
        options = _OPTIONS.get(self.distribution, ())
        lists = tuple(key for key in ("classes", "changes") if getattr(self, key))
        return ("distribution", *mean, *options, *lists)

    def plain(self) -> dict[str, Any]:
        """Return the keys that apply, as JSON values: durations in seconds, shares as fractions."""

        def base(value: Any) -> Any:
            if isinstance(value, tuple):
                return [{key: getattr(one, key) for key in type(one).model_fields} for one in value]
            return value

        return {key: base(getattr(self, key)) for key in self._applying()}


class ComputeSpec(DurationSpec):
    """The time that a device takes to compute a gradient."""

    distribution: Distribution = Field(
        default="constant", description=f"{_DISTRIBUTIONS} Default: constant."
    )


class WaitingSpec(DurationSpec):
    """The time that a worker waits between computing and pushing."""

    distribution: Distribution = Field(
        default="exponential", description=f"{_DISTRIBUTIONS} Default: exponential."
    )

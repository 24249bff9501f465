"""The experiment file's section on sweeps: values of keys, of which every combination is run."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from testbed.experiment.sections.section import as_tuple


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check that values differ: one run would count as two in means over seeds."""
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ValueError(f"has {value} twice: give each value once")
    return values


class SweepSpec(BaseModel):
    """The keys to be swept, as ``--set`` has them, each with the list of its values."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[
        str,
        Annotated[
            tuple[Any, ...],
            BeforeValidator(as_tuple),
            Field(min_length=1),
            AfterValidator(_each_once),
        ],
    ]

    exclude: Annotated[tuple[dict[str, object], ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Combinations that are not run: each a mapping of swept keys to a value, or to a "
        "list of values, which all have to match. Default: none.",
        examples=[[{"algorithms.adacomp.ratio": 0.001, "waiting.mean": ["200ms", "600ms"]}]],
    )

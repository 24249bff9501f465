"""The experiment file's section on sweeps: values of keys, of which every combination is run."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from testbed.experiment.sections.section import as_tuple


class SweepSpec(BaseModel):
    """The keys to be swept, as ``--set`` has them, each with the list of its values."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[
        str, Annotated[tuple[Any, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    ]

    exclude: Annotated[tuple[dict[str, Any], ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Combinations that are not run: each a mapping of swept keys to a value, or to a "
        "list of values, which all have to match. Default: none.",
        examples=[[{"algorithms.adacomp.ratio": 0.001, "waiting.mean": ["200ms", "600ms"]}]],
    )

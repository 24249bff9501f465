"""The experiment file's section on which worker has which training images."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.section import Conflict, Section

Kind = Literal["equal", "dirichlet", "shards", "sizes"]
KINDS: tuple[str, ...] = get_args(Kind)
_OWNERS = {"alpha": "dirichlet", "per_worker": "shards"}
"""The options, each with the kind that it belongs to."""


class PartitionSpec(Section):
    """The partition of the training images among the workers."""

    kind: Kind = Field(
        default="equal",
        description="equal: at random, the same number each (default); dirichlet: each label's "
        "images by a draw of Dirichlet(alpha) over the workers; shards: per_worker pieces each of the "
        "images sorted by label, as McMahan et al. 2017; sizes: at random, in proportion to the weight "
        "of the worker's class in devices.classes.",
    )
    alpha: float | None = Field(
        default=None,
        validate_default=True,
        ge=0.001,
        le=1e6,
        description="dirichlet: α; the smaller, the fewer labels a worker has.",
        examples=[0.5],
    )
    per_worker: int | None = Field(
        default=None,
        validate_default=True,
        ge=1,
        le=10_000,
        description="shards: how many each worker has; default 2.",
        examples=[2],
    )

    # Runs for missing options too, to fill in the default or to report that one is missing.
    @field_validator(*_OWNERS, mode="before")
    @classmethod
    def _belongs(cls, value: object, info: ValidationInfo) -> object:
        kind, option = info.data.get("kind"), str(info.field_name)
        if kind is None:  # reported by its own field
            return value
        owner = _OWNERS[option]
        if kind != owner and value is not None:
            raise ValueError(f"is an option of '{owner}', and the kind is '{kind}': remove it")
        if kind == owner and value is None:
            if option == "per_worker":
                return 2
            raise ValueError(f"is missing: '{kind}' needs it; for example `{option}: 0.5`")
        return value

    @model_serializer(mode="wrap")
    def _without_the_rest(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if value is not None}

    def plain(self, classes: Sequence[DeviceClassSpec], class_of: Sequence[int]) -> dict[str, Any]:
        """Return the JSON values that ``testbed.learning.data.partitions.parts`` takes."""
        data = self.model_dump(mode="json")
        if self.kind == "sizes":
            data["weights"] = [classes[of].weight for of in class_of]
        return data

    def conflicts(self, classes: Sequence[DeviceClassSpec]) -> list[Conflict]:
        """Return the conflicts of the partition with the classes' weights."""
        if self.kind != "sizes":
            text = "is of `partition: sizes` only: write that, or take it out"
            return [
                (("devices", "classes", i, "weight"), text)
                for i, one in enumerate(classes)
                if one.weight is not None
            ]
        if not classes:
            text = (
                "sizes go by devices.classes, of which there are none: give it classes with weights"
            )
            return [(("partition",), text)]
        text = "has no weight, by which `partition: sizes` goes: add one, for example `weight: 3`"
        return [
            (("devices", "classes", i), text) for i, one in enumerate(classes) if one.weight is None
        ]

"""The experiment file's section on which worker has which training images."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from testbed.experiment.alternatives import ChosenByValue, ShortForm
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.section import Conflict, Section


class Partition(Section):
    """The partition of the training images among the workers."""

    kind: str

    def plain(self, classes: Sequence[DeviceClassSpec], class_of: Sequence[int]) -> dict[str, Any]:
        """Return the JSON values that ``testbed.learning.data.partitions.parts`` takes."""
        return self.model_dump()

    def conflicts(self, classes: Sequence[DeviceClassSpec]) -> list[Conflict]:
        """Return the conflicts of the partition with the classes' weights."""
        text = "is of `partition: sizes` only: write that, or take it out"
        return [
            (("devices", "classes", i, "weight"), text)
            for i, one in enumerate(classes)
            if one.weight is not None
        ]


class EqualPartition(Partition):
    """The same number of images for each worker, at random."""

    kind: Literal["equal"] = "equal"


class DirichletPartition(Partition):
    """Each label's images by a draw of Dirichlet(alpha) over the workers."""

    kind: Literal["dirichlet"]
    alpha: float = Field(
        ge=0.001,
        le=1e6,
        description="α; the smaller, the fewer labels a worker has.",
        examples=[0.5],
    )


class ShardsPartition(Partition):
    """Pieces of the images sorted by label, as McMahan et al. 2017."""

    kind: Literal["shards"]
    per_worker: int = Field(
        default=2, ge=1, le=10_000, description="Shards that each worker has; default 2."
    )


class SamePartition(Partition):
    """All images for each worker, which draws its mini-batches from them by itself."""

    kind: Literal["same"]


class StreamPartition(Partition):
    """All images in one shuffled stream of mini-batches, of which one is dealt with each answer."""

    kind: Literal["stream"]


class SizesPartition(Partition):
    """Images at random, in proportion to the weight of the worker's class in devices.classes."""

    kind: Literal["sizes"]

    def plain(self, classes: Sequence[DeviceClassSpec], class_of: Sequence[int]) -> dict[str, Any]:
        return self.model_dump() | {"weights": [classes[of].weight for of in class_of]}

    def conflicts(self, classes: Sequence[DeviceClassSpec]) -> list[Conflict]:
        if not classes:
            text = "sizes go by the weights of devices.classes, and there are none: add classes"
            return [(("partition",), text)]
        text = "has no weight, and `partition: sizes` needs one; for example `weight: 3`"
        return [
            (("devices", "classes", i), text) for i, one in enumerate(classes) if one.weight is None
        ]


PartitionSpec: TypeAlias = Annotated[
    EqualPartition
    | DirichletPartition
    | ShardsPartition
    | SizesPartition
    | SamePartition
    | StreamPartition,
    ChosenByValue("kind", default="equal"),
    ShortForm(("equal", "dirichlet", "shards", "sizes", "same", "stream"), key="kind"),
]
"""The section ``partition``."""

"""The experiment file's section on which worker has which training images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.errors import SpecError
from testbed.experiment.alternatives import ChosenByValue, ShortForm, alternatives, tags
from testbed.experiment.sections.datasets import DatasetSpec
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.devices import DevicesSpec
from testbed.experiment.sections.section import Conflict, Section, as_tuple
from testbed.experiment.sections.timing import TRACES, file_beside
from testbed.learning.data import given
from testbed.learning.data.by_label import Assignment

_SMALLEST, _LARGEST = 1e-9, 1e9
"""The limits of α: beyond them its draws are no others any more."""


class Partition(Section):
    """The partition of the training images among the workers."""

    kind: str

    def plain(self, classes: Sequence[DeviceClassSpec], class_of: Sequence[int]) -> dict[str, Any]:
        """Return the JSON values that ``testbed.learning.data.partitions.parts`` takes."""
        return self.model_dump()

    def conflicts(self, devices: DevicesSpec, dataset: DatasetSpec) -> list[Conflict]:
        """Return the conflicts of the partition with devices, their weights, and the dataset."""
        text = "is of `partition: sizes` only: write that, or take it out"
        return [
            (("devices", "classes", i, "weight"), text)
            for i, one in enumerate(devices.classes)
            if one.weight is not None
        ]


class EqualPartition(Partition):
    """The same number of images for each worker, at random."""

    kind: Literal["equal"] = "equal"


class DirichletPartition(Partition):
    """Each label's images by a draw of Dirichlet(alpha) over the workers."""

    kind: Literal["dirichlet"]
    alpha: float = Field(
        ge=_SMALLEST,
        le=_LARGEST,
        description="α; the smaller, the fewer labels a worker has.",
        examples=[0.5],
    )


class InnerDirichletPartition(Partition):
    """For each worker a mixture of labels, by a draw of Dirichlet(alpha) over the labels."""

    kind: Literal["inner-dirichlet"]
    alpha: float = Field(
        ge=_SMALLEST,
        le=_LARGEST,
        description="α; the smaller, the fewer labels a worker has, as long as they last.",
        examples=[0.5],
    )
    sizes: Annotated[tuple[int, ...] | None, BeforeValidator(as_tuple)] = Field(
        default=None,
        description="The number of images of each worker; default (null): all images, the same number "
        "for each.",
        examples=[[300, 200, 100]],
    )

    def conflicts(self, devices: DevicesSpec, dataset: DatasetSpec) -> list[Conflict]:
        found = super().conflicts(devices, dataset)
        sizes = self.sizes or ()
        if self.sizes is not None and len(sizes) != devices.workers:
            text = f"has {len(sizes)} sizes, and there are {devices.workers} workers: give each one"
            found.append((("partition", "sizes"), text))
        found += [
            (("partition", "sizes", i), f"must be at least 1, not {size}")
            for i, size in enumerate(sizes)
            if size < 1
        ]
        return found


class PathologicalPartition(Partition):
    """The same number of classes for each worker; a class's images are shared out evenly."""

    kind: Literal["pathological"]
    classes_per_worker: int = Field(
        default=2, ge=1, le=10_000, description="Classes that each worker has; default 2."
    )
    class_assignment: Assignment = Field(
        default="random",
        description="random: each worker draws its classes (default); deterministic: worker i has "
        "those from i on, in a circle; first-deterministic: i modulo their number, and drawn ones.",
    )


class LinearPartition(Partition):
    """Images at random; worker i has i + 1 times as many as worker 0."""

    kind: Literal["linear"]


class ExponentialPartition(Partition):
    """Images at random; each worker has a multiple of what the one before it has."""

    kind: Literal["exponential"]
    ratio: float | None = Field(
        default=None,
        gt=1,
        le=1000,
        description="The multiple; default (null): e, as in Flower.",
        examples=[1.2],
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

    def conflicts(self, devices: DevicesSpec, dataset: DatasetSpec) -> list[Conflict]:
        if not devices.classes:
            text = "sizes go by the weights of devices.classes, and there are none: add classes"
            return [(("partition",), text)]
        text = "has no weight, and `partition: sizes` needs one; for example `weight: 3`"
        return [
            (("devices", "classes", i), text)
            for i, one in enumerate(devices.classes)
            if one.weight is None
        ]


_SHA256 = (
    "The file's SHA-256 when the experiment was begun; written into a run's spec, and taken anew where "
    "the file is given beside an experiment file."
)


class _OfFile(Partition):
    """A partition that a file may determine."""

    file: Annotated[str, AfterValidator(file_beside)] | None
    sha256: str | None

    @model_validator(mode="after")
    def _digest(self, info: ValidationInfo) -> "_OfFile":
        if self.file is not None and (self.sha256 is None or TRACES in (info.context or {})):
            try:
                object.__setattr__(self, "sha256", given.digest(Path(self.file)))
            except SpecError as error:
                raise ValueError(str(error)) from None
        return self

    def conflicts(self, devices: DevicesSpec, dataset: DatasetSpec) -> list[Conflict]:
        found = super().conflicts(devices, dataset)
        if self.file is not None and dataset.train_images is not None:
            text = "partition.file is about all training images: take one of them out"
            found.append((("dataset", "train_images"), text))
        return found


class NaturalPartition(_OfFile):
    """To each worker all images of some owners: writers, users, hospitals."""

    kind: Literal["natural"]
    by: str | None = Field(
        default=None,
        description="The column of the dataset that has each image's owner.",
        examples=["writer_id"],
    )
    file: Annotated[str, AfterValidator(file_beside)] | None = Field(
        default=None,
        description="A text file with the owner of each training image, one a line; relative to the "
        "experiment file's folder.",
        examples=["writers.txt"],
    )
    per_worker: int | None = Field(
        default=None,
        ge=1,
        description="Owners that each worker has, and the images of others are left out; default "
        "(null): all owners, dealt out evenly.",
    )
    sha256: str | None = Field(default=None, description=_SHA256)

    def conflicts(self, devices: DevicesSpec, dataset: DatasetSpec) -> list[Conflict]:
        found = super().conflicts(devices, dataset)
        if (self.by is None) == (self.file is None):
            what = "neither `by` nor `file`" if self.by is None else "both `by` and `file`"
            text = f"has {what}: give it the column, or the file, that has each image's owner"
            found.append((("partition",), text))
        return found


class FilePartition(_OfFile):
    """The images of each worker as a file has them, from whatever program wrote it."""

    kind: Literal["file"]
    file: Annotated[str, AfterValidator(file_beside)] = Field(
        description="A text file with a line for each worker, the numbers of its training images from "
        "0, with blanks or commas between them; relative to the experiment file's folder.",
        examples=["parts.txt"],
    )
    sha256: str | None = Field(default=None, description=_SHA256)


@dataclass(frozen=True)
class _ByFileAlone:
    """Annotation: a mapping with ``file`` and without ``kind`` is of the kind ``file``."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def complete(value: Any) -> Any:
            if isinstance(value, Mapping) and "file" in value and "kind" not in value:
                return {"kind": "file", **value}
            return value

        return core_schema.no_info_before_validator_function(complete, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        file = {"type": "string", "examples": ["parts.txt"]}
        alone = {"properties": {"file": file}, "required": ["file"]}
        return {
            "anyOf": [
                handler(schema),
                {"type": "object", **alone, "additionalProperties": False},
            ]
        }


_Partitions: TypeAlias = (
    EqualPartition
    | DirichletPartition
    | InnerDirichletPartition
    | PathologicalPartition
    | ShardsPartition
    | SizesPartition
    | LinearPartition
    | ExponentialPartition
    | NaturalPartition
    | FilePartition
    | SamePartition
    | StreamPartition
)
KINDS = tuple(kind for one in alternatives(_Partitions) for kind in tags(one))
PartitionSpec: TypeAlias = Annotated[
    _Partitions,
    ChosenByValue("kind", default="equal"),
    _ByFileAlone(),
    ShortForm(KINDS, key="kind"),
]
"""The section ``partition``."""

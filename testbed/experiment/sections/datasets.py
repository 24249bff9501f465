"""The experiment file's section about the dataset: a known one, a path, a text, or a function's."""

import difflib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from testbed.experiment.sections.functions import FunctionSection, PathBeside, section_of
from testbed.experiment.sections.section import FOLDER, path_in
from testbed.learning.data.choice import DatasetChoice

DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "cifar10-jpeg")


class DatasetSpec(FunctionSection):
    """The dataset that the model learns."""

    name: str = Field(
        description="digits (bundled, 1,797 images upscaled to 28×28), mnist, fashion-mnist, cifar10, "
        "cifar100, cifar10-jpeg (CIFAR-10 re-encoded as JPEG), or a path: a directory of idx files, a "
        "directory or tar archive of images in train/<class>/ and test/<class>/, or a file of numpy's "
        "arrays (.npz); a relative one is in the experiment file's folder. text is a text file "
        "(`path`), huggingface a saved dataset, and `module:function` a dataset of one's own.",
        examples=list(DATASETS),
    )
    scaling: Literal["standardised", "unit", "per-channel"] | None = Field(
        default="standardised",
        description="standardised: (x − mean) / max(std, 1/√D) per image of D values, as AdaComp's "
        "authors do (1/28); unit: x / 255, from 0 to 1; per-channel: (x − mean) / std of each channel "
        "over all training images that are used. Null, the default of a dataset of one's own: "
        "standardised if its examples are bytes.",
    )
    train_images: int | None = Field(
        default=None,
        ge=1,
        description="Train on this many images only, the first of a shuffle by the seed; "
        "default (null): all.",
    )

    @property
    def choice(self) -> DatasetChoice:
        """The dataset, with the arguments of its function."""
        return DatasetChoice(self.name, self.options)

    @field_validator("name")
    @classmethod
    def _known_or_directory(cls, name: str, info: ValidationInfo) -> str:
        folder: Path | None = (info.context or {}).get(FOLDER)
        if name in DATASETS or (folder is None and Path(name).is_absolute()):
            return name
        if DatasetChoice(name).is_function:
            return name
        if folder is not None and name and (path := path_in(folder, name)) is not None:
            return str(path)
        where = f" in {folder.absolute()}" if folder and not Path(name).is_absolute() else ""
        near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
        raise ValueError(
            f"'{name}' is neither a dataset ({', '.join(DATASETS)}) nor an existing directory or "
            f"file{where}" + (f"; did you mean '{near[0]}'?" if near else "")
        )


class FunctionDatasetSpec(DatasetSpec):
    """A dataset that a function of one's own returns."""

    # What the file says must be possible, and examples need not be bytes.
    scaling: Literal["standardised", "unit", "per-channel"] | None = None


class TextSpec(DatasetSpec):
    """A plain text, for a model that predicts the next token."""

    name: Literal["text"] = Field(description="text: a plain text.")
    scaling: None = Field(default=None, description="Null: tokens are not scaled.")
    path: PathBeside = Field(
        description="The file; relative to the experiment file's folder.", examples=["text.txt"]
    )
    tokens: Literal["bytes", "characters", "words"] = Field(
        default="bytes",
        description="bytes: 256 tokens (default); characters or words: those that occur in the text, "
        "which is UTF-8. Words are separated by blanks; the end of a line is a word, too.",
    )
    context: int = Field(
        default=64, ge=1, description="Tokens of an example, which follow each other; default 64."
    )
    test: Annotated[
        Annotated[float, Field(gt=0, lt=1), Tag("share")] | Annotated[PathBeside, Tag("file")],
        Discriminator(lambda value: "file" if isinstance(value, str) else "share"),
    ] = Field(
        default=0.1,
        description="Fraction of the text, its end, that is for evaluations (default 0.1), or another "
        "file, which is.",
        examples=["valid.txt"],
    )


class HuggingFaceSpec(DatasetSpec):
    """A dataset that was saved by Hugging Face's library, with its ``save_to_disk``."""

    name: Literal["huggingface"] = Field(
        description="huggingface: a dataset saved by Hugging Face's library, which must be installed."
    )
    scaling: Literal["standardised", "unit", "per-channel"] | None = Field(
        default=None, description="As of other datasets; default (null): standardised, of bytes."
    )
    path: PathBeside = Field(
        description="The folder of a DatasetDict; relative to the experiment file's folder.",
        examples=["cifar10"],
    )
    image: str | None = Field(
        default=None,
        description="The column of the examples; default (null): the only one of images.",
        examples=["img"],
    )
    label: str | None = Field(
        default=None,
        description="The column of the labels; default (null): the only one of classes.",
        examples=["fine_label"],
    )
    train: str = Field(
        default="train", description="The split with the training examples; default train."
    )
    test: str = Field(
        default="test",
        description="The split with the examples for evaluations; default test.",
        examples=["validation"],
    )


def function_section(name: str) -> type[DatasetSpec] | None:
    """Return the section of a dataset that a function returns; None if there is no such function.

    Raises:
        SpecError: its module cannot be imported, or it is no function.
    """
    built_in: dict[str, type[DatasetSpec]] = {"text": TextSpec, "huggingface": HuggingFaceSpec}
    if name in built_in:
        return built_in[name]
    choice = DatasetChoice(name)
    if not choice.is_function:
        return None
    return section_of(name, choice.function, FunctionDatasetSpec, 0)

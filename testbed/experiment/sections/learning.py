"""The experiment file's sections on learning: dataset, model, training, evaluation."""

import difflib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from testbed.experiment.sections.section import Section

DATASETS = ("digits", "mnist", "fashion-mnist")
MODELS = ("cnn", "mlp", "mlp-large", "cnn-small", "resnet20")
OF_ADACOMP = ("cnn", "mlp", "mlp-large")
"""The models whose parameters are drawn as AdaComp's authors do, unless the file says otherwise."""
FOLDER = "folder"
"""Key of the validation context: the folder against which relative directories are resolved."""


class DatasetSpec(Section):
    """The dataset that the model learns."""

    name: str = Field(
        description="digits (bundled, 1,797 images upscaled to 28×28), mnist, fashion-mnist, or a "
        "directory of idx files; a relative one is in the experiment file's folder.",
        examples=list(DATASETS),
    )
    scaling: Literal["standardised", "unit"] = Field(
        default="standardised",
        description="standardised: (x − mean) / max(std, 1/28) per image, as AdaComp's authors do; "
        "unit: x / 255, from 0 to 1.",
    )
    train_images: int | None = Field(
        default=None,
        ge=1,
        description="Train on this many images only, the first of a shuffle by the seed; "
        "default (null): all.",
    )

    @property
    def directory(self) -> Path | None:
        """The directory of idx files; None for a dataset known by its name."""
        return None if self.name in DATASETS else Path(self.name)

    @field_validator("name")
    @classmethod
    def _known_or_directory(cls, name: str, info: ValidationInfo) -> str:
        folder: Path | None = (info.context or {}).get(FOLDER)
        if name in DATASETS or (folder is None and Path(name).is_absolute()):
            return name
        if folder is not None:
            directory = (folder / Path(name).expanduser()).resolve()
            if name and directory.is_dir():
                return str(directory)
        near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
        raise ValueError(
            f"'{name}' is neither a dataset ({', '.join(DATASETS)}) nor an existing directory"
            + (f"; did you mean '{near[0]}'?" if near else "")
        )


class ModelSpec(Section):
    """The model, and how its parameters are initialised."""

    name: Literal["cnn", "mlp", "mlp-large", "cnn-small", "resnet20"] = Field(
        description="cnn: AdaComp's convolutional network, 211,690 parameters on 28×28; mlp: "
        "784-128-64-10, 109,386 parameters; mlp-large: 784-512-512-10; cnn-small: two convolutions "
        "with BatchNorm, and dropout, 1,922 parameters on 28×28; resnet20: the residual network of He "
        "et al. for CIFAR-10, 269,722 parameters on 3×32×32. Each fits any shape of images.",
    )
    initialisation: Literal["paper", "torch", "module"] = Field(
        default="paper",
        description="The law of the parameters of convolutions and linear layers. paper (default of "
        "cnn, mlp and mlp-large): weights normal with σ = 0.1, truncated at 2σ, biases 0.1, as "
        "AdaComp's authors do; torch: the defaults of PyTorch's layers; module (default of the "
        "others): as the model's constructor draws them.",
    )
    buffers: Literal["none", "shared"] = Field(
        default="none",
        description="What becomes of BatchNorm's running statistics and other buffers. none (default): "
        "there are none; BatchNorm always normalises by the mini-batch's own statistics. shared: they "
        "are at the server, and travel and are averaged with the parameters.",
    )

    @model_validator(mode="before")
    @classmethod
    def _initialisation_of_model(cls, data: Any) -> Any:
        if isinstance(data, dict) and "initialisation" not in data:
            known = data.get("name") in OF_ADACOMP
            return data | {"initialisation": "paper" if known else "module"}
        return data


class TrainingSpec(Section):
    """The settings of training that all algorithms share."""

    batch_size: int = Field(
        default=10, ge=1, description="Images per gradient, b; default 10, as AdaComp's authors."
    )
    learning_rate: float = Field(
        default=0.1,
        gt=0,
        description="Learning rate α before staleness; default 0.1, as AdaComp's authors.",
    )
    updates: int = Field(
        ge=1,
        description="A run ends after this many updates applied by the server, all workers' "
        "together.",
        examples=[1000],
    )


class EvaluationSpec(Section):
    """The evaluations of the model during training."""

    every: int = Field(
        default=100,
        ge=1,
        description="Updates from one test to the next; default 100. The end is tested too.",
    )
    images: int | None = Field(
        default=None,
        ge=1,
        description="Test on this many test images only, the first ones; default (null): all.",
    )
    peer: int = Field(
        default=0,
        ge=0,
        description="Algorithms without a server: the peer whose model is tested, and whose link is "
        "captured; default 0.",
    )

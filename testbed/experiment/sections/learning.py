"""The experiment file's sections on learning: model, training, evaluation."""

import math
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import BeforeValidator, Field, model_validator

from testbed.algorithms.learning_rate import RateSchedule
from testbed.experiment.alternatives import OrOwn, ShortForm
from testbed.experiment.sections.functions import FunctionSection, own_section
from testbed.experiment.sections.losses import MeasureSpec, own_measure
from testbed.experiment.sections.section import Section, as_tuple

ImageModel: TypeAlias = Literal[
    "cnn",
    "mlp",
    "mlp-large",
    "cnn-small",
    "cnn-5x5",
    "ako-mnist",
    "ako-imagenet",
    "resnet20",
    "resnet18",
    "wide-resnet-16-4",
]
"""The models of images."""
MODELS: tuple[str, ...] = get_args(ImageModel)
"""Their names."""
MOST_GROWTH = 1e6
"""The most by which milestones may raise the learning rate: a step's factors stay within float32."""
TRANSFORMER = "transformer"
"""The model of tokens, which has keys of its own."""
OF_ADACOMP = ("cnn", "mlp", "mlp-large")
"""The models whose parameters are drawn as AdaComp's authors do, unless the file says otherwise."""


class ModelSpec(FunctionSection):
    """The model, and how its parameters are initialised."""

    name: ImageModel = Field(
        description="cnn: AdaComp's convolutional network, 211,690 parameters on 28×28; mlp: "
        "784-128-64-10, 109,386 parameters; mlp-large: 784-512-512-10; cnn-small: two convolutions "
        "with BatchNorm, and dropout, 1,922 parameters on 28×28; cnn-5x5: two convolutions of "
        "5×5 and two dense layers, 21,840 parameters on 28×28; ako-mnist and ako-imagenet: Ako's, of "
        "three convolutions and two dense layers, 59,590 on 28×28 and 1,216,196 on 3×32×32 in 100 "
        "classes; resnet20: the residual network of He et al. for CIFAR-10, 269,722 parameters on "
        "3×32×32; resnet18: 11,173,962; wide-resnet-16-4: that of Zagoruyko and Komodakis, 2,748,890. "
        "Each fits any shape of images that its convolutions leave something of.",
    )
    initialisation: Literal["paper", "torch", "module"] = Field(
        default="paper",
        description="The law of the parameters of convolutions and linear layers. paper (default of "
        "cnn, mlp and mlp-large): weights normal with σ = 0.1, truncated at 2σ, biases 0.1, as "
        "AdaComp's authors do; torch: the defaults of PyTorch's layers; module (default of the "
        "others): as the model's constructor draws them.",
    )
    buffers: Literal["none", "shared", "per-worker"] = Field(
        default="none",
        description="What becomes of BatchNorm's running statistics and other buffers. none (default): "
        "there are none; BatchNorm always normalises by the mini-batch's own statistics. shared: they "
        "are at the server, and travel and are averaged with the parameters. per-worker: each worker "
        "keeps its own between its gradients; evaluations do not use them.",
    )

    @model_validator(mode="before")
    @classmethod
    def _initialisation_of_model(cls, data: Any) -> Any:
        if isinstance(data, dict) and "initialisation" not in data:
            known = data.get("name") in OF_ADACOMP
            return data | {"initialisation": "paper" if known else "module"}
        return data


class TransformerSpec(ModelSpec):
    """A small decoder-only Transformer, for a text or other tokens."""

    # It has keys of its own, so that its name is no other model's.
    name: Literal["transformer"] = Field(  # type: ignore[assignment]
        description="transformer: it predicts the next token."
    )
    layers: int = Field(default=2, ge=1, description="Blocks of attention and a perceptron.")
    width: int = Field(
        default=64, ge=1, description="Of the vector at each position; a multiple of heads."
    )
    heads: int = Field(default=4, ge=1, description="Heads of each attention.")

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be shared by {self.heads} heads")
        return self


class ScheduleSpec(Section):
    """The learning rate over the run: a warm-up, and then steps or a cosine."""

    unit: Literal["updates", "epochs"] = Field(
        default="updates",
        description="Of warm_up and milestones. An epoch is as many updates as take as many images as "
        "there are: training images / (batch_size · gradients per update).",
    )
    warm_up: float = Field(
        default=0,
        ge=0,
        description="Length of a linear warm-up to training.learning_rate; default 0, none.",
    )
    warm_up_from: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="Fraction of the learning rate at which the warm-up begins; default 0.1.",
    )
    milestones: Annotated[tuple[float, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Points from which on the rate is multiplied by factor once more; ascending.",
        examples=[[80, 120]],
    )
    factor: float = Field(default=0.1, gt=0, description="Factor at each milestone; default 0.1.")
    cosine_to: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Fraction of the learning rate at which half a cosine, from the warm-up to the end "
        "of the run, ends; default (null): no cosine.",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        points = (0.0, *self.milestones)
        if list(points) != sorted(set(points)):
            raise ValueError("milestones are above 0 and ascend")
        if self.milestones and self.cosine_to is not None:
            raise ValueError("the rate follows milestones or a cosine: take one of them out")
        if self.milestones and self.milestones[0] < self.warm_up:
            raise ValueError("the first milestone is in the warm-up: move it")
        if len(self.milestones) * math.log(self.factor) > math.log(MOST_GROWTH):
            raise ValueError(
                f"the rate grows by {self.factor:g} at {len(self.milestones)} milestones, by more "
                f"than {MOST_GROWTH:g} in all: choose a smaller factor"
            )
        return self

    def rate(self, alpha: float, epoch: float, updates: int) -> RateSchedule:
        """Return the learning rate at each version.

        Args:
            alpha: α.
            epoch: its length in updates.
            updates: the run's.
        """
        length = epoch if self.unit == "epochs" else 1.0
        return RateSchedule(
            alpha,
            self.warm_up * length,
            self.warm_up_from,
            [milestone * length for milestone in self.milestones],
            self.factor,
            self.cosine_to,
            updates,
        )


class AugmentationSpec(Section):
    """The random changes of training images."""

    crop: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Pixels by which an image is padded on each side before a random crop of its own "
        "size; default 0, none. The padding is 0 after scaling.",
        examples=[4],
    )
    flip: bool = Field(
        default=False, description="Mirror images left to right, each with probability 1/2."
    )


class TrainingSpec(Section):
    """The settings of training that all algorithms share."""

    batch_size: int = Field(
        default=10, ge=1, description="Images per gradient, b; default 10, as AdaComp's authors."
    )
    learning_rate: float = Field(
        default=0.1,
        gt=0,
        le=1e30,
        description="Learning rate α before staleness; default 0.1, as AdaComp's authors.",
    )
    schedule: ScheduleSpec | None = Field(
        default=None,
        description="How the learning rate changes with the updates; default (null): not at all.",
    )
    weight_decay: float = Field(
        default=0,
        ge=0,
        le=1e6,
        description="λ: workers add λ·θ, at their base version, to each gradient; default 0.",
        examples=[0.0001],
    )
    clip: float | None = Field(
        default=None,
        gt=0,
        description="Workers scale a gradient of a greater norm down to this, before weight decay and "
        "before anything is selected from it; default (null): never.",
    )
    augmentation: AugmentationSpec | None = Field(
        default=None,
        description="Random crops and mirror images of the training images; default (null): none.",
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
    measure: Annotated[
        MeasureSpec | None, OrOwn("name", own_measure), ShortForm((), open_ended=True)
    ] = Field(
        default=None,
        description="A function of one's own that is measured besides loss and accuracy; default "
        "(null): none, or of a text the perplexity.",
    )
    peer: int = Field(
        default=0,
        ge=0,
        description="Algorithms without a server: the peer whose model is tested, and whose link is "
        "captured; default 0.",
    )


BUILT_IN = dict.fromkeys((*MODELS, TRANSFORMER))
ENTRY_POINTS = "testbed.models"
"""As ``testbed.learning.models.ENTRY_POINTS``, which imports torch."""


def plugin_model(name: str) -> type[ModelSpec] | None:
    """Return the section of a model with keys of its own; None if the name is of no such model.

    Raises:
        SpecError: its module cannot be imported, or it is no function.
    """
    if name == TRANSFORMER:
        return TransformerSpec
    what = "model: it must be a function that returns a torch.nn.Module"
    return own_section(name, ModelSpec, BUILT_IN, ENTRY_POINTS, given=1, what=what)

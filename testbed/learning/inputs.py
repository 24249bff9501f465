"""Shapes and types of a model's inputs and outputs, without the libraries that compute with them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Inputs:
    """The shape of a dataset's examples, and the number of its classes.

    Attributes:
        image: the shape of one example: channels, height and width of an image; of other data any.
        classes: the number of outputs of a model: of labels, which are numbered from 0; of tokens; or
            of an example's targets, where these are no labels.
        tokens: True if an example is a row of tokens, each with a token as its target: then a model
            returns ``classes`` outputs at each position.
    """

    image: tuple[int, ...]
    classes: int
    tokens: bool = False

    @property
    def are_images(self) -> bool:
        """True if an example is an image: channels, height and width."""
        return len(self.image) == 3 and not self.tokens

    def __str__(self) -> str:
        shape = " × ".join(map(str, self.image))
        if self.tokens:
            return f"{shape} tokens of {self.classes}"
        return f"{shape} in {self.classes} classes"


GREY_28 = Inputs((1, 28, 28), 10)
"""MNIST and the datasets in its form."""
COLOUR_32 = Inputs((3, 32, 32), 10)
"""CIFAR-10."""

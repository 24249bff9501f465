"""The images that a model takes, without the libraries that compute with them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Inputs:
    """The shape of a dataset's images, and the number of its classes.

    Attributes:
        image: channels, height and width.
        classes: the number of labels, which are numbered from 0.
    """

    image: tuple[int, int, int]
    classes: int

    def __str__(self) -> str:
        return f"{' × '.join(map(str, self.image))} in {self.classes} classes"


GREY_28 = Inputs((1, 28, 28), 10)
"""MNIST and the datasets in its form."""
COLOUR_32 = Inputs((3, 32, 32), 10)
"""CIFAR-10."""

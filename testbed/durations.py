"""How long things take: laws with a mean, sampled from a random stream of their own."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Duration(ABC):
    """A law of durations.

    Attributes:
        mean: expected duration in seconds, 0 or more.
    """

    mean: float

    @abstractmethod
    def sample(self, stream: np.random.Generator) -> float:
        """Draw one duration in seconds."""


class Constant(Duration):
    """Always the mean."""

    def sample(self, stream: np.random.Generator) -> float:
        return self.mean


class Uniform(Duration):
    """Uniform between 0 and twice the mean."""

    def sample(self, stream: np.random.Generator) -> float:
        return float(stream.uniform(0.0, 2.0 * self.mean))


class Exponential(Duration):
    """Exponential: memoryless, the wide law under which workers push in random order."""

    def sample(self, stream: np.random.Generator) -> float:
        return float(stream.exponential(self.mean))


LAWS: dict[str, type[Duration]] = {
    "constant": Constant,
    "uniform": Uniform,
    "exponential": Exponential,
}

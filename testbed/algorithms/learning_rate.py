"""The learning rate as a function of the version: constant, or by a schedule.

The half that owns the step asks for α at its own version, so that an algorithm's code stays the paper's
equation: ``alpha = self.learning_rate(self.version)``. Lengths are in updates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

LearningRate: TypeAlias = Callable[[int], float]
"""Returns α (η) for the update that is made at a version, counted from 0."""


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """The same α at every version."""

    alpha: float

    def __call__(self, version: int) -> float:
        """Return α."""
        return self.alpha


@dataclass(frozen=True, slots=True)
class Scaled:
    """A multiple of another α at every version."""

    alpha: LearningRate
    factor: float

    def __call__(self, version: int) -> float:
        """Return α."""
        return self.factor * self.alpha(version)


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """A linear warm-up, and then steps at milestones or a cosine.

    Attributes:
        alpha: α, which the warm-up ends with.
        warm_up: its length; with 0 there is none.
        warm_up_from: the fraction of α at which it begins.
        milestones: versions from which on α is multiplied by ``factor`` once more.
        cosine_to: the fraction of α at which half a cosine ends; None: there is no cosine.
        updates: the version at which the cosine ends.
    """

    alpha: float
    warm_up: float
    warm_up_from: float
    milestones: Sequence[float]
    factor: float
    cosine_to: float | None
    updates: int

    def __call__(self, version: int) -> float:
        """Return α at a version."""
        if version < self.warm_up:
            share = version / self.warm_up
            return self.alpha * (self.warm_up_from + (1 - self.warm_up_from) * share)
        if self.cosine_to is None:
            passed = sum(version >= milestone for milestone in self.milestones)
            return float(self.alpha * self.factor**passed)
        share = (version - self.warm_up) / max(self.updates - self.warm_up, 1)
        wave = (1 + math.cos(math.pi * min(share, 1.0))) / 2
        return self.alpha * (self.cosine_to + (1 - self.cosine_to) * wave)


def as_rate(learning_rate: float | LearningRate) -> LearningRate:
    """Return a learning rate as a function of the version, whether it is one or a number."""
    return learning_rate if callable(learning_rate) else ConstantRate(learning_rate)

"""Laws of durations: a mean, a shape, and a sampler on a stream that the caller owns.

A law is frozen and knows neither device nor clock; all devices may share it. Samples are made from
numpy's standard variates, which cost a fraction of its general ones and give the same numbers.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, is_dataclass

import numpy as np

from testbed.errors import SpecError
from testbed.plugins.names import check_complete, find


@dataclass(frozen=True, slots=True)
class Law(ABC):
    """A law of durations.

    Attributes:
        mean: expected duration in seconds, 0 or more.
    """

    mean: float

    @property
    def variance(self) -> float:
        """The variance in s²; infinite if the law has none. A law of a user's own need not know it."""
        raise NotImplementedError

    @abstractmethod
    def sample(self, stream: np.random.Generator) -> float:
        """Draw one duration in seconds."""


@dataclass(frozen=True, slots=True)
class QuantileLaw(Law):
    """A law whose quantiles have a closed form."""

    @abstractmethod
    def quantile(self, share: float) -> float:
        """Return the duration in seconds within which this share of them ends, 0 ≤ share < 1."""


@dataclass(frozen=True, slots=True)
class Constant(QuantileLaw):
    """The constant law: always the mean."""

    @property
    def variance(self) -> float:
        return 0.0

    def quantile(self, share: float) -> float:
        return self.mean

    def sample(self, stream: np.random.Generator) -> float:
        return self.mean


@dataclass(frozen=True, slots=True)
class Uniform(QuantileLaw):
    """The uniform law between 0 and twice the mean."""

    @property
    def variance(self) -> float:
        return self.mean**2 / 3

    def quantile(self, share: float) -> float:
        return 2.0 * self.mean * share

    def sample(self, stream: np.random.Generator) -> float:
        return 2.0 * self.mean * stream.random()


@dataclass(frozen=True, slots=True)
class Exponential(QuantileLaw):
    """The exponential law: memoryless, and so wide that workers push in random order."""

    @property
    def variance(self) -> float:
        return self.mean**2

    def quantile(self, share: float) -> float:
        return -self.mean * math.log1p(-share)

    def sample(self, stream: np.random.Generator) -> float:
        return self.mean * stream.standard_exponential()


@dataclass(frozen=True, slots=True)
class ShiftedExponential(QuantileLaw):
    """The law mean · (1 − α + α·Exp(1)): the round-trip times of DBW (paper 004, section 4).

    Attributes:
        alpha: α, from 0 (constant) to 1 (exponential).
    """

    alpha: float

    @property
    def variance(self) -> float:
        return (self.mean * self.alpha) ** 2

    def quantile(self, share: float) -> float:
        return self.mean * (1 - self.alpha - self.alpha * math.log1p(-share))

    def sample(self, stream: np.random.Generator) -> float:
        return self.mean * (1 - self.alpha + self.alpha * stream.standard_exponential())


@dataclass(frozen=True, slots=True)
class Pareto(QuantileLaw):
    """The Pareto law: P(T > t) = (t_min / t)^a for t ≥ t_min = mean · (a − 1) / a; heavy-tailed.

    Attributes:
        shape: a > 1; the variance is finite only for a > 2, and near 1 a sample's mean says little.
    """

    shape: float

    @property
    def smallest(self) -> float:
        """The shortest duration, t_min, in seconds."""
        return self.mean * (self.shape - 1) / self.shape

    @property
    def variance(self) -> float:
        a = self.shape
        if a <= 2:
            return math.inf if self.mean else 0.0
        return self.mean**2 / (a * (a - 2))

    def quantile(self, share: float) -> float:
        return self.smallest * math.exp(-math.log1p(-share) / self.shape)

    def sample(self, stream: np.random.Generator) -> float:
        a = self.shape
        return self.mean * (a - 1) / a * math.exp(stream.standard_exponential() / a)


@dataclass(frozen=True, slots=True)
class Gamma(Law):
    """The gamma law with shape 1/V² and scale mean·V²: its standard deviation is V·mean.

    Attributes:
        variation: V, the coefficient of variation; 0 is constant, 1 exponential.
    """

    variation: float

    @property
    def variance(self) -> float:
        return (self.mean * self.variation) ** 2

    def sample(self, stream: np.random.Generator) -> float:
        square = self.variation * self.variation
        return self.mean * square * stream.standard_gamma(1 / square) if square else self.mean


@dataclass(frozen=True, slots=True)
class Cvb:
    """The coefficient-of-variation-based method of Ali et al. (Gap-Aware, paper 002, Appendix C.3).

    Algorithm 13: machine j has the mean p_j ~ Gamma(1/V_mach², mean·V_mach²), drawn once, and each of
    its tasks takes Gamma(1/V_task², p_j·V_task²). Without V_mach all machines are alike. That is
    Algorithm 12 except for its draw of q, the mean of all tasks, from the *tasks'* law: this would
    leave the run's mean to one draw, and tasks would vary by its V_mach = 0.1. Without this draw, 1 %
    of homogeneous tasks take more than 1.25 means, as in the paper's Figure 3; with it, 4.8 % would.

    Attributes:
        mean: the mean of all tasks on all machines, in seconds.
        task_variation: V_task, of a machine's tasks; 0.1 in the paper.
        machine_variation: V_mach, of the machines' means; 0 homogeneous, 0.6 the paper's heterogeneous.
    """

    mean: float
    task_variation: float
    machine_variation: float

    @property
    def variance(self) -> float:
        """The variance of all tasks on all machines, in s²."""
        both = (1 + self.task_variation**2) * (1 + self.machine_variation**2)
        return self.mean**2 * (both - 1)

    def machine(self, stream: np.random.Generator) -> Gamma:
        """Draw one machine; return the law of its tasks."""
        p = Gamma(self.mean, self.machine_variation).sample(stream)
        return Gamma(p, self.task_variation)


LAWS: dict[str, type[Law]] = {
    "constant": Constant,
    "uniform": Uniform,
    "exponential": Exponential,
    "shifted-exponential": ShiftedExponential,
    "pareto": Pareto,
    "gamma": Gamma,
}
"""The laws that all devices share, by their names in an experiment file; their fields are options."""

ENTRY_POINTS = "testbed.durations"
"""The group of entry points by which installed packages give their laws short names."""


def law_named(name: str) -> type[Law]:
    """Return the law of a name.

    Raises:
        SpecError: there is none, its module cannot be imported, or it is no law.
    """
    found = find(name, LAWS, ENTRY_POINTS)
    if not (isinstance(found, type) and issubclass(found, Law) and is_dataclass(found)):
        raise SpecError(
            f"'{name}' is no law of durations: it must be a dataclass derived from "
            "testbed.durations.Law"
        )
    check_complete(name, found)
    return found

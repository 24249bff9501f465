"""The quantity by which models are compared: what curves draw, and what a goal is a value of.

Of a run it is its own measure, such as perplexity, if it has one; otherwise the accuracy, or the loss
where the examples have no classes.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from testbed import number_text as q


@dataclass(frozen=True, slots=True)
class Quality:
    """A quantity that evaluations measure.

    Attributes:
        name: ``accuracy``, ``loss``, or the column of a measure, such as ``perplexity``.
        unit: a word or a sign; empty for a pure number.
        better: whether a better model has a higher or a lower value.
    """

    name: str
    unit: str = ""
    better: Literal["higher", "lower"] = "lower"

    @property
    def axis(self) -> str:
        """The label of an axis: which way is better is said where a reader may not know it."""
        way = () if self == ACCURACY else (f"{self.better} is better",)
        return f"{self.name} ({', '.join((*filter(None, [self.unit]), *way))})"

    @property
    def heading(self) -> str:
        """The name in a column's heading, with the unit; of the accuracy, its unit alone."""
        if self == ACCURACY:
            return self.unit
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def best(self, values: npt.NDArray[np.float64]) -> float | None:
        """Return the best of some values that is a finite number, or None."""
        known = values[np.isfinite(values)]
        if not len(known):
            return None
        return float(known.max() if self.better == "higher" else known.min())

    def first_reaching(self, values: npt.NDArray[np.float64], goal: float | None) -> int | None:
        """Return the index of the first value that is at least as good as the goal, or None."""
        if goal is None:
            return None
        reached = np.flatnonzero(values >= goal if self.better == "higher" else values <= goal)
        return int(reached[0]) if len(reached) else None

    def rounded(self, value: float) -> float:
        """Return a value with three digits, never better than it is."""
        if value == 0:
            return value
        step = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
        steps = math.floor(value / step) if self.better == "higher" else math.ceil(value / step)
        return float(f"{steps * step:.6g}")

    def text(self, value: float | None) -> str:
        """Return a value as a cell of a table has it: ``97.24``, ``4.318``; a dash if unknown."""
        if self == ACCURACY:
            return q.as_decimal(value, 2)
        return q.UNKNOWN if value is None or not math.isfinite(value) else f"{value:.4g}"

    def with_unit(self, value: float | None) -> str:
        """Return a value as text without superfluous zeros, and its unit: ``97 %``, ``4.32``."""
        return q.UNKNOWN if value is None else f"{value:g} {self.unit}".strip()

    def words(self, value: float | None) -> str:
        """Return a value with its unit, and with its name unless it is an accuracy's percentage."""
        text = f"{self.text(value)} {self.unit}".strip()
        return text if self == ACCURACY else f"{self.name} {text}"

    def record(self) -> dict[str, Any]:
        """Return name, unit and direction, for JSON."""
        return {"name": self.name, "unit": self.unit, "better": self.better}


ACCURACY = Quality("accuracy", "%", "higher")
LOSS = Quality("loss")

"""The numbers that an algorithm reports with each update, such as its gap or its k, thinned.

A run directory has a row for each update; a record has the means of ``POINTS`` equal parts of the
run, so that it stays small enough to be committed and still shows what changes over training.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

POINTS = 100
"""Parts of a run that have a mean each; a run of fewer updates has one for each update."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The thinned diagnostics of a run; without a name if its algorithm reports none.

    Attributes:
        iteration: int64, shape (points,), the last update of each part.
        values: by the diagnostics' names their means over the parts, float64, shape (points,); NaN
            where no update of a part has a known value.
    """

    iteration: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    values: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write them as CSV; without a name remove the file. Raises OSError."""
        if not self.values:
            path.unlink(missing_ok=True)
            return
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("iteration", *self.values))
            for place, iteration in enumerate(self.iteration.tolist()):
                writer.writerow(
                    (iteration, *(f"{column[place]:.6g}" for column in self.values.values()))
                )

    @classmethod
    def read(cls, path: Path) -> "Diagnosed":
        """Read what ``write`` has written; without a file there are none.

        Raises:
            OSError: the file cannot be read.
            ValueError: it has another format.
        """
        if not path.exists():
            return cls()
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            first, *names = next(rows, None) or ("",)
            if first != "iteration" or not names:
                raise ValueError("its first row is not iteration and names of diagnostics")
            iteration, *columns = zip(*rows, strict=True)
        values = {
            name: np.array(column, np.float64) for name, column in zip(names, columns, strict=True)
        }
        return cls(np.array(iteration, np.int64), values)


def thinned(diagnostics: Mapping[str, npt.NDArray[np.float64]]) -> Diagnosed:
    """Return the means over equal parts of a run.

    Args:
        diagnostics: by name a value for each update, as ``Run.diagnostics`` has them.
    """
    updates = min((len(column) for column in diagnostics.values()), default=0)
    if not updates:
        return Diagnosed()
    ends = np.linspace(0, updates, min(POINTS, updates) + 1).round().astype(np.int64)
    values = {
        name: np.array([_mean(part) for part in np.split(column[:updates], ends[1:-1])])
        for name, column in diagnostics.items()
    }
    return Diagnosed(ends[1:], values)


def _mean(values: npt.NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")

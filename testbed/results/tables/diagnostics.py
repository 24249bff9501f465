"""The numbers that a run's algorithm itself reported with each update, one row for each."""

from dataclasses import dataclass

import numpy as np

from testbed import number_text as q
from testbed.results.reading.recorded_run import RecordedRun

HEADINGS = ("diagnostic", "last", "mean", "least", "greatest", "meaning")


@dataclass(frozen=True, slots=True)
class DiagnosticRow:
    """One diagnostic over all updates of a run; None where no update has a known value."""

    name: str
    last: float | None
    mean: float | None
    least: float | None
    greatest: float | None
    meaning: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, one entry per heading."""
        numbers = (self.last, self.mean, self.least, self.greatest)
        texts = (q.UNKNOWN if number is None else f"{number:.4g}" for number in numbers)
        return (self.name, *texts, self.meaning)


def diagnostic_rows(run: RecordedRun) -> tuple[DiagnosticRow, ...]:
    """Return a row for each diagnostic of a run's algorithm; none if it reports none."""
    rows = []
    for one in run.manifest.diagnostics:
        values = run.diagnostics.get(one.name, np.empty(0))
        known = values[np.isfinite(values)]
        there = len(known) > 0
        rows.append(
            DiagnosticRow(
                one.name,
                last=float(known[-1]) if there else None,
                mean=float(known.mean()) if there else None,
                least=float(known.min()) if there else None,
                greatest=float(known.max()) if there else None,
                meaning=one.meaning,
            )
        )
    return tuple(rows)

"""Runs beside each other: the table and the figures that ``testbed compare`` and the report have."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import SpecError
from testbed.library.figure import Figure
from testbed.library.frames import frame
from testbed.library.results import Run, Runs, open_runs
from testbed.results.figures import accuracy as accuracy_figure
from testbed.results.figures.accuracy import Against
from testbed.results.reading.curves import curves_of
from testbed.results.reading.run import Run as Recorded
from testbed.results.tables import comparison as tables
from testbed.results.tables.reaching import ACCURACY

if TYPE_CHECKING:
    import pandas as pd


class Comparison:
    """Runs to compare. Made by ``compare``. As text it is the table of ``testbed compare``."""

    def __init__(self, runs: tuple[Recorded, ...], accuracy: float, baseline: str | None) -> None:
        self._runs = runs
        self._accuracy = accuracy
        self._table = tables.compare(runs, accuracy, baseline)

    def records(self) -> list[dict[str, Any]]:
        """Return a mapping for each run, of the columns of ``table``."""
        rows: list[dict[str, Any]] = tables.records(self._table)["runs"]
        return rows

    def table(self) -> "pd.DataFrame":
        """Return a row for each run: accuracies in percent, bytes of ingress, the ratio of wire bytes.

        Raises:
            TestbedError: pandas is not installed.
        """
        import pyarrow as pa

        return frame(pa.Table.from_pylist(self.records()))

    def figure(self, against: Against = "wire", *, linear: bool = False) -> Figure:
        """Return the figure of accuracy against ingress; runs that differ only in seed are one curve.

        Args:
            against: ``wire``, ``message`` or ``payload`` bytes, or ``iteration``.
            linear: True for a linear axis of bytes.
        """
        curves, accuracy = curves_of(self._runs), self._accuracy
        return Figure(lambda empty: accuracy_figure.draw(empty, curves, against, linear, accuracy))

    def __str__(self) -> str:
        lines = tables.plain_text(self._table.headings, self._table.cells)
        return "\n".join([lines, *self._table.remarks])


def compare(
    *runs: Run | Runs | str | Path, accuracy: float = ACCURACY, baseline: str | None = None
) -> Comparison:
    """Compare runs.

    Args:
        runs: runs, or what ``open_runs`` takes; at least one.
        accuracy: percent; the point where each curve first reaches it is marked.
        baseline: the run that ratios refer to; None for the first labelled ``asgd``, or the first.

    Raises:
        SpecError: there is no run.
        NoRunError: a run cannot be read, or the baseline is none of them.
    """
    found = {run.directory: run for given in runs for run in _recorded(given)}
    if not found:
        raise SpecError("there is no run to compare: give compare() at least one")
    return Comparison(tuple(found.values()), accuracy, baseline)


def _recorded(given: Run | Runs | str | Path) -> Iterator[Recorded]:
    if isinstance(given, str | Path):
        given = open_runs(given)
    for run in [given] if isinstance(given, Run) else given:
        yield run.recorded

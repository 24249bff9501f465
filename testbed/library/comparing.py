"""Runs beside each other: the table and the figures that ``testbed compare`` and the report have."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import SpecError
from testbed.library.data_frames import frame
from testbed.library.figure import Figure
from testbed.library.reading import Run, Runs, open_runs
from testbed.results.figures import quality_chart as quality_figure
from testbed.results.figures.quality_chart import AXES, Against
from testbed.results.reading.curves import curves_of, quality_of
from testbed.results.reading.quality import ACCURACY
from testbed.results.reading.recorded_run import RecordedRun as Recorded
from testbed.results.tables import comparison as tables
from testbed.results.tables.reaching import reaching
from testbed.results.tables.table import plain_text

if TYPE_CHECKING:
    import pandas as pd


class Comparison:
    """Runs to compare. Made by ``compare``. As text it is the table of ``testbed compare``."""

    def __init__(
        self, runs: tuple[Recorded, ...], goal: float | None, baseline: str | None
    ) -> None:
        self._runs = runs
        self._table = tables.compare(runs, goal, baseline)

    def records(self) -> list[dict[str, Any]]:
        """Return a mapping for each run, of the columns of ``table``."""
        rows: list[dict[str, Any]] = tables.records(self._table)["runs"]
        return rows

    def table(self) -> "pd.DataFrame":
        """Return a row for each run: accuracies in percent, bytes of ingress, the ratio of wire bytes.

        ``measure`` has the best and the final value of a run's own measure; the bytes to the goal are
        called by what runs are compared by: ``wire_bytes_to_accuracy``, ``wire_bytes_to_perplexity``.

        Raises:
            TestbedError: pandas is not installed.
        """
        import pyarrow as pa

        return frame(pa.Table.from_pylist(self.records()))

    def figure(self, against: Against = "wire", *, linear: bool = False) -> Figure:
        """Return the figure of accuracy, or the runs' own measure, against ingress.

        Runs that differ only in seed are one curve.

        Args:
            against: ``wire``, ``message`` or ``payload`` bytes, ``iteration``, ``time``, the seconds by
                the run's clock, or ``joules``, the devices' energy.
            linear: True for a linear axis of bytes.

        Raises:
            SpecError: there is no such axis.
        """
        if against not in AXES:
            raise SpecError(f"figure({against!r}): the axes are {', '.join(AXES)}")
        curves = curves_of(self._runs)
        reached = reaching(curves, self._table.goal)
        return Figure(quality_figure.chart(curves, against, linear, reached))

    def _repr_html_(self) -> str:
        """Return the same as a table of HTML, for notebooks."""
        head = "".join(f"<th>{escape(one)}</th>" for one in self._table.headings)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
            for row in self._table.cells
        )
        remarks = "".join(f"<p>{escape(one)}</p>" for one in self._table.remarks)
        return f"<table><tr>{head}</tr>{rows}</table>{remarks}"

    def __str__(self) -> str:
        lines = plain_text(self._table)
        return "\n".join([lines, *self._table.remarks])


def compare(
    *runs: Run | Runs | str | Path,
    accuracy: float | None = None,
    goal: float | None = None,
    baseline: str | None = None,
) -> Comparison:
    """Compare runs by their accuracy or, if all have the same, by their own measure.

    Args:
        runs: runs, or what ``open_runs`` takes; at least one.
        accuracy: the goal of runs that are compared by accuracy, percent.
        goal: the value of what runs are compared by; the point where each curve first reaches it is
            marked. Default: the best value that all reach; of accuracy the whole percent, at most 97.
        baseline: the run that ratios refer to; None for the first labelled ``asgd``, or the first.

    Raises:
        SpecError: there is no run, or the goal cannot be an accuracy or is one of other runs.
        NoRunError: a run cannot be read, or the baseline is none of them.
    """
    found = {run.directory: run for given in runs for run in _recorded(given)}
    if not found:
        raise SpecError("there is no run to compare: give compare() at least one")
    recorded = tuple(found.values())
    if accuracy is not None and (quality := quality_of(recorded)) != ACCURACY:
        raise SpecError(
            f"these runs are compared by {quality.name}, not accuracy: give a value of it as goal"
        )
    return Comparison(recorded, accuracy if goal is None else goal, baseline)


def _recorded(given: Run | Runs | str | Path) -> Iterator[Recorded]:
    if isinstance(given, str | Path):
        given = open_runs(given)
    for run in [given] if isinstance(given, Run) else given:
        yield run.recorded

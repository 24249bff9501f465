"""The table of all runs of a folder, as ``testbed ls`` and the page of all runs show it."""

from collections.abc import Sequence

from testbed import number_text as q
from testbed.results.reading.quality import ACCURACY
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.table import Table

_DIGITS = 16
"""Digits of a digest that tell runs with equal parameters from others, as `make agree` prints them."""


def listing(runs: Sequence[RecordedRun]) -> Table:
    """Return the table of some runs.

    Raises:
        NoRunError: the summary of one cannot be read, nor made of its journals.
    """
    by_accuracy = all(run.score.quality == ACCURACY for run in runs)
    headings = (
        "run",
        "state",
        "engine",
        "started (UTC)",
        "updates",
        "best %" if by_accuracy else "best",
        "wire",
        "parameters",
    )
    return Table(headings, [_cells(run, by_accuracy) for run in runs])


def _cells(run: RecordedRun, by_accuracy: bool) -> Sequence[str]:
    summary, score = run.summary, run.score
    best = score.quality.text if by_accuracy else score.quality.words
    return (
        run.id,
        summary.ended,
        run.clock,
        run.manifest.started.strftime("%Y-%m-%d %H:%M:%S"),
        q.as_count(summary.updates),
        best(score.best),
        q.as_bytes(summary.ingress.wire_bytes),
        (summary.parameters_sha256 or q.UNKNOWN)[:_DIGITS],
    )

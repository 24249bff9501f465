"""The record of a run of peers in which nothing is declared and nobody is suspected."""

from collections.abc import Sequence

from testbed.training.entries import Entry, EvaluationDue, Row


class QuietRecord:
    """Takes rows and evaluations, and nothing else."""

    def record(self, entries: Sequence[Entry]) -> None:
        assert all(isinstance(entry, Row | EvaluationDue) for entry in entries)

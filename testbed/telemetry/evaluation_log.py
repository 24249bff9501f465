"""The evaluations of a run: a journal, and ``curve.csv``, which people and spreadsheets read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from testbed.telemetry.table_journal import Journal
from testbed.telemetry.text_files import begin_with

_SCHEMA = pa.schema(
    [
        ("iteration", pa.int64()),
        ("time", pa.float64()),
        ("accuracy", pa.float64()),
        ("loss", pa.float64()),
        ("payload_bytes", pa.int64()),
        ("message_bytes", pa.int64()),
        ("wire_bytes", pa.int64()),
    ]
)
CURVE_COLUMNS: tuple[str, ...] = tuple(_SCHEMA.names)
MEASURED = "measured"
"""The key of the value of the run's measure, whose column has the measure's name."""


class EvaluationLog:
    """Appends evaluations to both files."""

    def __init__(
        self,
        directory: Path,
        kept: pa.Table | None,
        measure: str | None = None,
        exact: Sequence[str] = (),
    ) -> None:
        """Start both files.

        Args:
            kept: the rows of the earlier journal, which is replaced; None if there must be none.
            measure: the name of the column of the run's measure, if it has one.
            exact: the names of the columns of exact values, after all others.
        """
        own = [*([] if measure is None else [measure]), *exact]
        schema = pa.schema([*_SCHEMA, *(pa.field(name, pa.float64()) for name in own)])
        self._columns: tuple[str, ...] = tuple(schema.names)
        self._measure = measure
        self._path = directory / "curve.csv"
        self._journal = Journal(directory, "evaluations", schema, kept)
        self._begin_curve(schema.empty_table() if kept is None else kept)

    def _begin_curve(self, table: pa.Table) -> None:
        self._curve = begin_with(
            self._path, [",".join(self._columns), *map(self._line, table.to_pylist())]
        )

    @property
    def rows(self) -> int:
        """The number of evaluations."""
        return self._journal.rows

    def append(self, row: Mapping[str, float]) -> None:
        """Append one evaluation, with a value for each column, under ``MEASURED`` for the measure's."""
        if self._measure is not None:
            row = {**row, self._measure: row[MEASURED]}
        self._journal.append({name: [row[name]] for name in self._columns})
        self._curve.write(self._line(row) + "\n")
        self._curve.flush()

    def cut_back(self, version: int) -> None:
        """Remove the evaluations of later versions than ``version``."""
        kept = self._journal.rewrite(
            lambda table: table.filter(table["iteration"].to_numpy() <= version)
        )
        self._curve.close()
        self._begin_curve(kept)

    def close(self) -> None:
        """End both files."""
        self._curve.close()
        self._journal.close()

    def _line(self, row: Mapping[str, Any]) -> str:
        values = (row[name] for name in self._columns)
        return ",".join("" if value is None else str(value) for value in values)

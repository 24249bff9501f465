"""The evaluations of a run: a journal, and ``curve.csv``, which people and spreadsheets read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from testbed.telemetry.journal import Journal
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


class EvaluationLog:
    """Appends evaluations to both files."""

    def __init__(self, directory: Path, kept: pa.Table | None) -> None:
        """Begin both files.

        Args:
            kept: the rows of the earlier journal, which is replaced; None if there must be none.
        """
        self._path = directory / "curve.csv"
        self._journal = Journal(directory, "evaluations", _SCHEMA, kept)
        self._begin_curve(_SCHEMA.empty_table() if kept is None else kept)

    def _begin_curve(self, table: pa.Table) -> None:
        self._curve = begin_with(
            self._path, [",".join(CURVE_COLUMNS), *map(_line, table.to_pylist())]
        )

    @property
    def rows(self) -> int:
        """The number of evaluations."""
        return self._journal.rows

    def append(self, row: Mapping[str, float]) -> None:
        """Append one evaluation, with a value for each of ``CURVE_COLUMNS``."""
        self._journal.append({name: [row[name]] for name in CURVE_COLUMNS})
        self._curve.write(_line(row) + "\n")
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


def _line(row: Mapping[str, Any]) -> str:
    values = (row[name] for name in CURVE_COLUMNS)
    return ",".join("" if value is None else str(value) for value in values)

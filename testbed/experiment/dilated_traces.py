"""A copy of a trace, in CSV or Parquet, whose times are longer by a factor."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from testbed.durations.traces import is_parquet
from testbed.errors import SpecError
from testbed.trace_files import parse_seconds, read_rows


def write_dilated(source: Path, copy: Path, columns: Sequence[str], factor: float) -> None:
    """Write a trace with its times multiplied; an empty cell stays empty.

    Args:
        columns: those that are times, of which a trace need not have all.

    Raises:
        SpecError: the trace cannot be read, or a time is none.
    """
    try:
        if is_parquet(source):
            _write_parquet(source, copy, columns, factor)
            return
    except (OSError, pa.ArrowException) as error:
        raise SpecError(f"the trace {source} cannot be read: {error}") from error
    with copy.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for where, row in read_rows(source, writer.writerow):
            writer.writerow(
                repr(parse_seconds(cell, where) * factor) if name in columns and cell else cell
                for name, cell in row.items()
            )


def _write_parquet(source: Path, copy: Path, columns: Sequence[str], factor: float) -> None:
    table = parquet.read_table(source)
    for at, name in enumerate(table.column_names):
        if name in columns:
            longer = pc.multiply(table.column(name).cast(pa.float64()), factor)
            table = table.set_column(at, name, longer)
    parquet.write_table(table, copy)

"""Reading the journals of a run, which it writes row by row.

A run that ended left Parquet files. A run that is going, or whose orchestrator was killed, has Arrow
IPC streams in their place, which may stop anywhere: in the schema, in a batch's header, in its
values. Every complete batch is returned and the rest is left out; nothing is guessed. ``curve.csv``
is flushed at each evaluation, so it may have more evaluations than the stream.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import SpecError

UPDATES = {
    "iteration": "int64",
    "worker": "int32",
    "base_version": "int64",
    "staleness": "int64",
    "payload_bytes": "int64",
    "message_bytes": "int64",
    "loss": "float32",
    "time": "float64",
    "applied": "bool",
    "server": "int32",
}
EVALUATIONS = {
    "iteration": "int64",
    "time": "float64",
    "accuracy": "float64",
    "loss": "float64",
    "payload_bytes": "int64",
    "message_bytes": "int64",
    "wire_bytes": "int64",
}
ACCOUNTING = {
    "second": "int32",
    "device": "string",
    "direction": "string",
    "frames": "int64",
    "wire_bytes": "int64",
    "stream_bytes": "int64",
    "header_bytes": "int64",
    "ack_bytes": "int64",
    "connection_bytes": "int64",
    "retransmitted_bytes": "int64",
    "arp_bytes": "int64",
    "other_bytes": "int64",
}


class NoRunError(SpecError):
    """There is no run of the given name or path, or it cannot be read."""


def read_updates(directory: Path) -> Any:
    """Return a run's pushes as a ``pyarrow.Table`` with the columns ``UPDATES``.

    Raises:
        NoRunError: the journal exists but lacks some of these columns.
    """
    return _journal(directory, "updates", UPDATES)


def read_evaluations(directory: Path, own: Sequence[str] = ()) -> Any:
    """Return a run's evaluations as a ``pyarrow.Table`` with the columns ``EVALUATIONS``.

    Args:
        own: the columns that only some runs have: their measure's, and those of exact values.

    Raises:
        NoRunError: the journal exists but lacks some of these columns.
    """
    columns = EVALUATIONS | dict.fromkeys(own, "float64")
    table = _journal(directory, "evaluations", columns)
    if (directory / "evaluations.parquet").exists():
        return table
    text = _curve_csv(directory / "curve.csv", columns)
    return text if text is not None and text.num_rows > table.num_rows else table


def read_accounting(directory: Path) -> Any:
    """Return the counts from a run's capture, a ``pyarrow.Table`` with the columns ``ACCOUNTING``.

    One row per second since training began (negative before), device and direction (``ingress`` is
    towards the parameter server); ``wire_bytes`` is the sum of the columns after it.

    Raises:
        NoRunError: the file exists but cannot be read, or lacks some of these columns.
        FileNotFoundError: there is none: capture was off, or the run ended before it was written.
    """
    import pyarrow as pa

    path = directory / "traffic" / "accounting.parquet"
    schema = pa.schema([(column, pa.type_for_alias(kind)) for column, kind in ACCOUNTING.items()])
    try:
        table = _parquet(path.read_bytes())
    except pa.ArrowInvalid:
        raise NoRunError(f"{path} cannot be read: it is no whole Parquet file") from None
    return _columns(table, schema, f"the rows of {path}")


def read_columns(directory: Path, name: str, columns: Sequence[str]) -> Any:
    """Return those of some columns that a journal has, in its own types, as a ``pyarrow.Table``.

    Args:
        name: the journal's file name without its suffix.
    """
    import pyarrow as pa

    table = _rows(directory, name, pa.schema([]))
    return table.select([column for column in columns if column in table.column_names])


def _journal(directory: Path, name: str, columns: dict[str, str]) -> Any:
    import pyarrow as pa

    schema = pa.schema([(column, pa.type_for_alias(kind)) for column, kind in columns.items()])
    return _columns(_rows(directory, name, schema), schema, f"the {name} of {directory}")


def _rows(directory: Path, name: str, schema: Any) -> Any:
    """Return all rows of a journal; an empty table of the schema if there is none."""
    import pyarrow as pa

    table = schema.empty_table()
    # The stream disappears when the parquet file is complete, which may be between two attempts.
    for path in (f"{name}.parquet", f"{name}.arrows", f"{name}.parquet"):
        try:
            data = (directory / path).read_bytes()
            table = _whole_batches(data, schema) if path.endswith(".arrows") else _parquet(data)
            break
        except FileNotFoundError:
            continue
        except pa.ArrowInvalid:  # a parquet file cut off by a kill: the stream is still there
            continue
    return table


def _parquet(data: bytes) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    # Without threads: an Arrow thread that releases ``data`` while the interpreter exits aborts the
    # process (seen in 10 of 60 processes that read and exited).
    file = parquet.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    return file.read(use_threads=False)


def _columns(table: Any, schema: Any, what: str) -> Any:
    """Return the schema's columns of a table, in its types; ``what`` is the subject of the error."""
    import pyarrow as pa

    if "applied" in schema.names and "applied" not in table.column_names:
        # Runs made before there were algorithms that drop pushes applied all of them.
        table = table.append_column("applied", pa.array([True] * table.num_rows, pa.bool_()))
    if "server" in schema.names and "server" not in table.column_names:
        # Runs made before there were several servers had one.
        table = table.append_column("server", pa.array([0] * table.num_rows, pa.int32()))
    missing = [column for column in schema.names if column not in table.column_names]
    if missing:
        raise NoRunError(
            f"{what} have no column {', '.join(missing)}: they were written by another version of "
            "the testbed, or by something else"
        )
    return table.select(schema.names).cast(schema)


def _whole_batches(data: bytes, schema: Any) -> Any:
    """Return every complete batch of an Arrow IPC stream that may be cut off anywhere."""
    import pyarrow as pa

    try:
        stream = pa.ipc.open_stream(pa.BufferReader(data))
    except (pa.ArrowInvalid, OSError):
        return schema.empty_table()

    def batches() -> Iterator[Any]:
        while True:
            try:
                yield stream.read_next_batch()
            except (StopIteration, pa.ArrowInvalid, OSError):
                return

    return pa.Table.from_batches(list(batches()), stream.schema)


def _curve_csv(path: Path, columns: dict[str, str]) -> Any:
    """Return the evaluations in ``curve.csv`` up to its last complete line; None without the file."""
    import pyarrow as pa

    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    # A line without its end may have a number without its last digits: it is not read.
    complete = text[: text.rfind("\n") + 1].splitlines()
    rows: list[dict[str, float | int]] = []
    for line in csv.DictReader(complete):
        try:
            rows.append(
                {
                    column: int(line[column]) if kind == "int64" else float(line[column] or "nan")
                    for column, kind in columns.items()
                }
            )
        except (KeyError, TypeError, ValueError):
            break
    schema = pa.schema([(c, pa.type_for_alias(kind)) for c, kind in columns.items()])
    return pa.Table.from_pylist(rows, schema=schema)

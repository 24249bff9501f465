"""Reading the journals of a run, which it writes row by row.

A run that ended left Parquet files. A run that is going, or whose orchestrator was killed, has Arrow
IPC streams in their place, which may stop anywhere: in the schema, in a batch's header, in its
values. Every complete batch is returned and the rest is left out; nothing is guessed. ``curve.csv``
is flushed at each evaluation, so it may have more evaluations than the stream.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from testbed.device_names import is_aggregator
from testbed.errors import SpecError
from testbed.untrusted_text import LARGEST_TABLE, printable, read_file

M = TypeVar("M", bound=BaseModel)
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
UNKNOWN_OF_PROGRAMS = ("payload_bytes", "message_bytes")
"""The columns that are empty in a run of programs of users, of which only the wire bytes are known."""
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


_ROWS_PER_BYTE = 8
"""The most rows for each byte of a table's file: more are no run's, and would fill the memory."""
_FEW_ROWS = 1_000_000
"""Rows that any table may have, as equal ones take no room."""
_LATEST = 1e12
"""The latest second of a run."""


class NoRunError(SpecError):
    """There is no run of the given name or path, or it cannot be read."""


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Turn whatever the body's reading of a damaged file raises into an error that names the file.

    Raises:
        FileNotFoundError: there is no such file.
        NoRunError: it cannot be read.
    """
    import pyarrow as pa

    try:
        yield
    except (NoRunError, FileNotFoundError):
        raise
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        ArithmeticError,
        RecursionError,
        MemoryError,
    ) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        lines = printable(reason.strip().partition("\n")[0])[:300]
        raise NoRunError(f"{path} cannot be read: {lines}") from error


def read_json_lines(path: Path, kind: type[M]) -> tuple[M, ...]:
    """Return the records of a file, in order; none without it.

    A line that is cut off or not understood is left out.

    Raises:
        NoRunError: the file cannot be read.
    """
    try:
        with whole(path):
            lines = read_file(path).splitlines()
    except FileNotFoundError:
        return ()
    found = []
    for line in lines:
        with suppress(ValidationError):
            found.append(kind.model_validate_json(line))
    return tuple(found)


def read_updates(directory: Path) -> Any:
    """Return a run's pushes as a ``pyarrow.Table`` with the columns ``UPDATES``.

    Raises:
        NoRunError: the journal exists but lacks some of these columns.
    """
    return _journal(directory, "updates", UPDATES)


def version_times(
    iteration: npt.NDArray[np.int64], applied: npt.NDArray[np.bool_], time: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the versions that pushes led to, in order, and when the last push of each had come.

    A push that was dropped has the number of the version that it found, and came after that was made.

    Args:
        iteration, applied, time: of each push, columns of the journal.
    """
    versions, place = np.unique(iteration[applied], return_inverse=True)
    latest = np.full(len(versions), -np.inf)
    np.maximum.at(latest, place, time[applied])
    return versions, np.maximum.accumulate(latest)


def read_evaluations(directory: Path, own: Sequence[str] = ()) -> Any:
    """Return a run's evaluations as a ``pyarrow.Table`` with the columns ``EVALUATIONS``.

    In a run of programs those of ``UNKNOWN_OF_PROGRAMS`` are NaN.

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
    towards the parameter server); ``wire_bytes`` is the sum of the columns after it. What was captured
    at the links of aggregators is left out: it is no traffic of the server.

    Raises:
        NoRunError: the file exists but cannot be read, or lacks some of these columns.
        FileNotFoundError: there is none: capture was off, or the run ended before it was written.
    """
    import pyarrow as pa

    path = directory / "traffic" / "accounting.parquet"
    with whole(path):
        table = read_parquet(path)
        if "server" in table.column_names:
            at = map(str, table.column("server").to_pylist())
            table = table.filter(pa.array([not is_aggregator(name) for name in at], pa.bool_()))
        return _columns(table, _schema(ACCOUNTING), f"the rows of {path}")


def read_columns(directory: Path, name: str, columns: Sequence[str]) -> Any:
    """Return those of some columns that a journal has, in its own types, as a ``pyarrow.Table``."""
    import pyarrow as pa

    table = _rows(directory, name, pa.schema([]))
    with whole(directory / name):
        return table.select([column for column in columns if column in table.column_names])


def _schema(columns: Mapping[str, str]) -> Any:
    import pyarrow as pa

    return pa.schema([(column, pa.type_for_alias(kind)) for column, kind in columns.items()])


def _journal(directory: Path, name: str, columns: dict[str, str]) -> Any:
    schema = _schema(columns)
    table = _rows(directory, name, schema)
    with whole(directory / name):
        found = _without_nulls(_columns(table, schema, f"the {name} of {directory}"))
        _check_numbers(found)
        return found


def _without_nulls(table: Any) -> Any:
    """Return a table in which NaN stands for a number that no run of programs knows."""
    for name in UNKNOWN_OF_PROGRAMS:
        at = table.column_names.index(name)
        column = table.column(at)
        if len(column) and column.null_count == len(column):
            unknown = column.cast("float64").fill_null(float("nan"))
            table = table.set_column(at, name, unknown)
    return table


def _check_numbers(table: Any) -> None:
    """Check that a journal's numbers are such as a run writes; raise ValueError if not."""
    import pyarrow.compute as pc

    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise ValueError(f"values of {name} are missing")
        if not len(column) or name in ("loss", "accuracy") or str(column.type) == "bool":
            continue
        if str(column.type).startswith("int") and pc.min(column).as_py() < -1:
            raise ValueError(f"a value of {name} is negative")
        if name == "time" and not pc.all(pc.less_equal(pc.abs(column), _LATEST)).as_py():
            raise ValueError("a time is no time of a run")


def _rows(directory: Path, name: str, schema: Any) -> Any:
    """Return all rows of a journal; an empty table of the schema if there is none."""
    import pyarrow as pa

    damaged: NoRunError | None = None
    # The stream disappears when the parquet file is complete, which may be between two attempts.
    for path in (f"{name}.parquet", f"{name}.arrows", f"{name}.parquet"):
        try:
            with whole(directory / path):
                if path.endswith(".arrows"):
                    return _whole_batches(read_file(directory / path, LARGEST_TABLE), schema)
                return read_parquet(directory / path)
        except FileNotFoundError:
            continue
        except NoRunError as error:  # a parquet file cut off by a kill: the stream is still there
            if not isinstance(error.__cause__, pa.ArrowInvalid):
                raise
            damaged = error
    if damaged is not None and not (directory / f"{name}.arrows").exists():
        raise damaged
    return schema.empty_table()


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Return a Parquet file of a run directory as a ``pyarrow.Table``, of the given columns or of all.

    Raises:
        FileNotFoundError: there is none.
        OSError, ValueError, TypeError, LookupError, pyarrow.ArrowException: it cannot be read.
    """
    import pyarrow as pa
    from pyarrow import parquet

    data = read_file(path, LARGEST_TABLE)
    # Without threads: an Arrow thread that releases ``data`` while the interpreter exits aborts the
    # process (seen in 10 of 60 processes that read and exited).
    file = parquet.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    if file.metadata.num_rows > _FEW_ROWS + _ROWS_PER_BYTE * len(data):
        raise ValueError(f"it says that it has {file.metadata.num_rows:,} rows")
    table = file.read(columns=columns and list(columns), use_threads=False)
    table.validate(full=True)
    return table


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
    except (pa.ArrowException, OSError):
        return schema.empty_table()

    def batches() -> Iterator[Any]:
        while True:
            try:
                batch = stream.read_next_batch()
                batch.validate(full=True)  # a damaged one would otherwise end this process
            except (StopIteration, pa.ArrowException, OSError):
                return
            yield batch

    return pa.Table.from_batches(list(batches()), stream.schema)


def _curve_csv(path: Path, columns: dict[str, str]) -> Any:
    """Return the evaluations in ``curve.csv`` up to its last complete line; None without the file."""
    import pyarrow as pa

    try:
        with whole(path):
            text = read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    # A line without its end may have a number without its last digits: it is not read.
    complete = text[: text.rfind("\n") + 1].splitlines()
    rows: list[dict[str, float | int | None]] = []
    lines = csv.DictReader(complete)
    while True:
        try:
            line = next(lines)
            rows.append(
                {
                    column: _number(line[column], kind, empty=column in UNKNOWN_OF_PROGRAMS)
                    for column, kind in columns.items()
                }
            )
        except (StopIteration, csv.Error, KeyError, TypeError, ValueError):
            break
    with whole(path):
        table = _without_nulls(pa.Table.from_pylist(rows, schema=_schema(columns)))
        _check_numbers(table)
    return table


def _number(text: str, kind: str, *, empty: bool) -> float | int | None:
    """Return a number of ``curve.csv``; None of an empty field, where one may be."""
    if kind == "int64":
        return None if empty and not text else int(text)
    return float(text or "nan")

"""Traces of measured durations: a CSV or Parquet file, replayed or drawn from.

A trace is read whole, once per run and before the workers are forked, so that all of them share its
arrays. (pyarrow starts one thread, its allocator's, which does no harm at a fork: 400 children of a
process that had read Parquet worked.) An error in a file is reported with its row; nothing
is skipped or repaired.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.durations.laws import QuantileLaw
from testbed.errors import SpecError
from testbed.trace_files import parse_seconds, read_rows
from testbed.untrusted_text import open_file, printable

Order: TypeAlias = Literal["sequence", "random"]
SECONDS = "seconds"
DEVICE = "device"
_PARQUET = b"PAR1"
"""The first bytes of a Parquet file, by any name."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The durations of one traced device, or of a whole pooled trace.

    Attributes:
        seconds: float64 of shape (rows,), at least one, in file order.
        mean: the mean of ``seconds``.
    """

    seconds: npt.NDArray[np.float64]
    mean: float


@dataclass(frozen=True, slots=True)
class DrawnRows(QuantileLaw):
    """The law of a trace's rows, drawn with replacement."""

    rows: Rows

    @property
    def variance(self) -> float:
        return float(self.rows.seconds.var())

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.rows.seconds, share, method="inverted_cdf"))

    def sample(self, stream: np.random.Generator) -> float:
        seconds = self.rows.seconds
        return seconds.item(int(stream.random() * len(seconds)))


class Replayed:
    """The rows of a trace in file order, from the first again after the last.

    Not a law: it remembers its position, and belongs to one device.
    """

    __slots__ = ("_next", "_seconds", "mean")

    def __init__(self, rows: Rows, start: int) -> None:
        self.mean = rows.mean
        self._seconds = rows.seconds
        self._next = start

    def sample(self, stream: np.random.Generator) -> float:
        """Return the next duration in seconds; nothing is drawn."""
        at = self._next
        self._next = at + 1 if at + 1 < len(self._seconds) else 0
        return self._seconds.item(at)


def is_parquet(path: Path) -> bool:
    """Return True if a file is Parquet.

    Raises:
        OSError: it cannot be read.
    """
    with os.fdopen(open_file(path, follow=True), "rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


@dataclass(frozen=True, slots=True, eq=False)
class DurationTrace:
    """The content of a trace file.

    Attributes:
        devices: the rows of each traced device, in the natural order of the devices' names
            (``worker-2`` before ``worker-10``); of a trace without devices, all rows.
        names: the names of the traced devices; empty if the trace is pooled.
    """

    devices: tuple[Rows, ...]
    names: tuple[str, ...]

    def of_device(self, device: int, devices: int, order: Order) -> DrawnRows | Replayed:
        """Return a device's source: the rows of the (device mod traced)-th traced device.

        Devices that share rows in sequence start evenly spread over them: from the same row, they would
        be in step for ever. The first to use them starts at the first row.
        """
        count = len(self.devices)
        rows = self.devices[device % count]
        if order == "random":
            return DrawnRows(rows.mean, rows)
        sharing = (devices - device % count + count - 1) // count
        return Replayed(rows, device // count * len(rows.seconds) // sharing)


def load_trace(path: Path) -> DurationTrace:
    """Read a trace: a column ``seconds``, and a column ``device`` unless it is pooled.

    Raises:
        SpecError: the file cannot be read, has no such column or no row, or a row is not a duration.
    """
    try:
        seconds, names = _read_parquet(path) if is_parquet(path) else _read_csv(path)
    except OSError as error:
        reason = error.strerror or error
        raise SpecError(f"the trace {path} cannot be read: {reason}") from None
    except UnicodeDecodeError as error:  # names of columns or devices in Parquet
        raise SpecError(f"the trace {path} has text that is not UTF-8: {error}") from None
    if not len(seconds):
        raise SpecError(f"the trace {path} has no rows: give it one for each duration")
    if names is None:
        return DurationTrace((_rows(seconds),), ())
    distinct = sorted(set(names), key=_natural)
    places: dict[str, list[int]] = {name: [] for name in distinct}
    for at, name in enumerate(names):
        places[name].append(at)
    return DurationTrace(tuple(_rows(seconds[places[name]]) for name in distinct), tuple(distinct))


def _rows(seconds: npt.NDArray[np.float64]) -> Rows:
    seconds.flags.writeable = False
    return Rows(seconds, float(seconds.mean()))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that compares digits as the numbers they are."""
    # Python reads no number of more than 4,300 digits.
    return [
        (int(p), p) if p.isdecimal() and len(p) < 4300 else (-1, p)
        for p in re.split(r"(\d+)", name)
    ]


def _read_csv(path: Path) -> tuple[npt.NDArray[np.float64], list[str] | None]:
    seconds: list[float] = []
    names: list[str] = []
    check = partial(_columns, path)
    for where, cells in read_rows(path, check, is_no="neither CSV in UTF-8 nor Parquet"):
        seconds.append(parse_seconds(cells[SECONDS], where))
        if DEVICE in cells:
            names.append(_name(cells[DEVICE], where))
    return np.array(seconds, np.float64), names or None


def _read_parquet(path: Path) -> tuple[npt.NDArray[np.float64], list[str] | None]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # Without threads, as in testbed/results/reading/journals.py: an Arrow thread that releases
        # the file's bytes while the interpreter ends aborts the process.
        file = parquet.ParquetFile(pa.BufferReader(path.read_bytes()), pre_buffer=False)
        at = _columns(path, file.schema_arrow.names)
        wanted = [file.schema_arrow.names[i] for i in at]
        table = file.read(columns=wanted, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        first = str(error).partition("\n")[0]
        raise SpecError(f"the trace {path} is not a complete Parquet file: {first}") from None
    row = f"the trace {path}, row"
    column = enumerate(table.column(SECONDS).to_pylist(), 1)
    seconds = [parse_seconds(value, f"{row} {i}") for i, value in column]
    if len(at) == 1:
        return np.array(seconds, np.float64), None
    devices = enumerate(table.column(DEVICE).to_pylist(), 1)
    return np.array(seconds, np.float64), [_name(name, f"{row} {i}") for i, name in devices]


def _columns(path: Path, heading: Sequence[str]) -> list[int]:
    """Return the positions of ``seconds`` and, if it is there, ``device``."""
    for name in (SECONDS, DEVICE):
        if heading.count(name) > 1:
            raise SpecError(f"the trace {path} has more than one column '{name}'")
    if SECONDS not in heading:
        named = printable(", ".join(heading))[:100]  # Parquet has any text for a name
        has = f"its columns are {named}" if heading else "it has no columns"
        raise SpecError(f"the trace {path} has no column '{SECONDS}': {has}")
    return [heading.index(name) for name in (SECONDS, DEVICE) if name in heading]


def _name(value: object, where: str) -> str:
    if value in (None, ""):
        raise SpecError(f"{where}: has no device; name it, or leave the column out to pool")
    return str(value)

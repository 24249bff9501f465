"""Journals: ``read_updates`` and ``read_evaluations``, which may raise ``NoRunError``.

An input is the name of a file, a line break, and the only journal of a run directory.
"""

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from testbed.results.reading.journals import (
    EVALUATIONS,
    UPDATES,
    NoRunError,
    read_evaluations,
    read_updates,
)
from testbed.telemetry.table_journal import Journal

_ROWS = 12
_NAMES = ("updates.arrows", "updates.parquet", "evaluations.arrows", "evaluations.parquet")
_CURVE = "curve.csv"
TOKENS = (
    *(b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff", bytes(8), b"\xff" * 8, b"\0\0\0\x80"),
    *(number.to_bytes(4, "little") for number in (16, 64, 2**20, 2**31 - 1)),
    *(b"iteration", b"worker", b"time", b"nan", b"inf", b"-1", b"1e400", b"9" * 30, b",", b"\n"),
)


@cache
def _directory() -> Path:
    """Return an empty directory in memory, which goes with this process."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="testbed-fuzz-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, made)
    return Path(made)


def _rows(columns: dict[str, str], start: int) -> dict[str, list[Any]]:
    kinds = {"bool": bool, "float32": float, "float64": float}
    return {
        name: [kinds.get(kind, int)(start + row) for row in range(_ROWS)]
        for name, kind in columns.items()
    }


def corpus() -> Sequence[bytes]:
    """Return a journal of each kind, as a stream and as a table, and a curve."""
    found = []
    for name, columns in (("updates", UPDATES), ("evaluations", EVALUATIONS)):
        schema = pa.schema([(key, pa.type_for_alias(kind)) for key, kind in columns.items()])
        journal = Journal(_directory(), name, schema)
        for start in (0, _ROWS):
            journal.append(_rows(columns, start))
        for end in ("arrows", "parquet"):
            path = _directory() / f"{name}.{end}"
            found.append(path.name.encode() + b"\n" + path.read_bytes())
            if end == "arrows":
                journal.close()
        path.unlink()
    lines = [",".join(EVALUATIONS), *(f"{i},{i / 8},{i / 9},0.5,{i},{i},{i}" for i in range(5))]
    return [*found, "\n".join([_CURVE, *lines, ""]).encode()]


def check(data: bytes) -> bool:
    """Read a run's only journal; return False if it is refused."""
    name, _, content = data.partition(b"\n")
    if name.decode(errors="replace") not in (*_NAMES, _CURVE):
        return False
    path = _directory() / name.decode()
    path.write_bytes(content)
    reads, columns = (
        (read_updates, UPDATES) if name.startswith(b"updates") else (read_evaluations, EVALUATIONS)
    )
    try:
        table = reads(path.parent)
    except NoRunError:
        return False
    finally:
        path.unlink()
    assert table.column_names == list(columns)
    table.validate(full=True)
    return True

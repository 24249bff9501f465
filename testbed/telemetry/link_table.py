"""``traffic/links.parquet``: the bytes over each direction of each link in a whole run.

A table of links by directions, small enough to be written at once at the run's end. The direction from
a link's node to its router is its uplink.
"""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from testbed.run_tables import LinkBytes

NAME = "links.parquet"
"""Its name in the folder ``traffic`` of a run directory."""


_SCHEMA = pa.schema(
    [
        ("link", pa.int32()),
        ("node", pa.string()),
        ("router", pa.string()),
        ("device", pa.bool_()),
        ("direction", pa.string()),
        ("rate", pa.int64()),
        ("delay", pa.float64()),
        ("bytes", pa.int64()),
        ("frames", pa.int64()),
        ("dropped", pa.int64()),
        ("seconds", pa.float64()),
        ("utilisation", pa.float64()),
    ]
)


def write(traffic: Path, rows: Iterable[LinkBytes]) -> None:
    """Write the table into the folder ``traffic`` of a run directory."""
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_SCHEMA)
    parquet.write_table(table, traffic / NAME)

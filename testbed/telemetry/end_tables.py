"""The tables of a run directory that are small enough to be written at once, at the run's end.

``utilisation.parquet`` says how busy each device was: a row for each server, worker, peer and
aggregator, and for each machine with a co-located server. ``traffic/links.parquet`` has the bytes over
each direction of each link; the direction from a link's node to its router is its uplink.
"""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pyarrow as pa
from pyarrow import parquet

from testbed.run_tables import DeviceUtilisation, LinkBytes

UTILISATION = "utilisation.parquet"
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def write_utilisation(directory: Path, rows: Iterable[DeviceUtilisation]) -> None:
    """Write the table of devices into a run directory, in place of an earlier one."""
    _write(directory / UTILISATION, rows, _schema(DeviceUtilisation))


def write_links(traffic: Path, rows: Iterable[LinkBytes]) -> None:
    """Write the table of links into the folder ``traffic`` of a run directory."""
    schema = _schema(LinkBytes)
    number = schema.get_field_index("link")
    _write(traffic / "links.parquet", rows, schema.set(number, pa.field("link", pa.int32())))


def _schema(row: type) -> pa.Schema:
    return pa.schema([(name, _type(hint)) for name, hint in get_type_hints(row).items()])


def _type(hint: Any) -> pa.DataType:
    """Return the type of a column, whose fields may be None."""
    if type(None) in (parts := get_args(hint)):
        hint = parts[0]
    return pa.string() if get_origin(hint) is Literal else _TYPES[hint]


def _write(path: Path, rows: Iterable[Any], schema: pa.Schema) -> None:
    parquet.write_table(pa.Table.from_pylist([asdict(row) for row in rows], schema=schema), path)

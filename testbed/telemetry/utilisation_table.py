"""``utilisation.parquet``: how busy each device of a run was, its processor and its link.

A row for each server, worker, peer and aggregator, and for each machine with a co-located server; small
enough to be written at once at the run's end.
"""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from testbed.run_tables import DeviceUtilisation

NAME = "utilisation.parquet"
"""Its name in a run directory."""


_TYPES = {
    **dict.fromkeys(("device", "part", "machine", "cpu_source", "bytes_source"), pa.string()),
    **dict.fromkeys(("sent_bytes", "received_bytes", "uplink_rate", "downlink_rate"), pa.int64()),
}
_SCHEMA = pa.schema(
    [(name, _TYPES.get(name, pa.float64())) for name in DeviceUtilisation.__dataclass_fields__]
)


def write(directory: Path, rows: Iterable[DeviceUtilisation]) -> None:
    """Write the table into a run directory, in place of an earlier one."""
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_SCHEMA)
    parquet.write_table(table, directory / NAME)

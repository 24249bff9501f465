"""``traffic/links.parquet``: the bytes over each direction of each link in a whole run.

A table of links by directions, small enough to be written at once at the run's end. The direction from
a link's node to its router is its uplink.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

NAME = "links.parquet"
"""Its name in the folder ``traffic`` of a run directory."""


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """What passed one direction of a link.

    Attributes:
        link: the link's index.
        node, router: its ends.
        device: True if the node is a device, False if it is a router.
        direction: ``uplink``, from the node to the router, or ``downlink``.
        rate: bit/s as asked; None if it is not limited.
        delay: seconds as asked.
        bytes: on the wire at an MTU of 1,500, without the traffic of devices that only observe.
        frames: likewise; None in a simulation.
        dropped: frames that were lost or had no room; None in a simulation. Where neither loss, damage,
            jitter nor a queue is asked for, they are counted as they were handed over, several at once.
        seconds: the time by the run's clock in which they passed.
        utilisation: the mean share of the rate in use; None without a rate, or without time.
    """

    link: int
    node: str
    router: str
    device: bool
    direction: str
    rate: int | None
    delay: float
    bytes: int
    frames: int | None
    dropped: int | None
    seconds: float
    utilisation: float | None


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

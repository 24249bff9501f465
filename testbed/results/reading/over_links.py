"""``traffic/links.parquet``: what passed each direction of each link of a run."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from testbed.results.reading.journals import NoRunError


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What passed one direction of a link.

    Attributes:
        link: the link's index.
        node, router: its ends.
        device: True if the node is a device, False if it is a router.
        direction: ``uplink`` is from the node to the router.
        rate: bit/s as asked; None if it is not limited.
        delay: seconds as asked.
        bytes: on the wire; in a simulation modelled.
        frames, dropped: None in a simulation.
        seconds: the time by the run's clock in which they passed.
        utilisation: the mean share of the rate in use; None without a rate.
    """

    link: int
    node: str
    router: str
    device: bool
    direction: Literal["uplink", "downlink"]
    rate: int | None
    delay: float
    bytes: int
    frames: int | None
    dropped: int | None
    seconds: float
    utilisation: float | None


def read_over_links(directory: Path) -> tuple[LinkUse, ...]:
    """Read the table of a run directory; an older run, or one that ended early, has none.

    Raises:
        NoRunError: it cannot be read, or lacks a column.
    """
    import pyarrow as pa
    from pyarrow import parquet

    path = directory / "traffic" / "links.parquet"
    try:
        # Without threads, as in ``journals``.
        file = parquet.ParquetFile(pa.BufferReader(path.read_bytes()), pre_buffer=False)
        table = file.read(columns=[one.name for one in fields(LinkUse)], use_threads=False)
        return tuple(LinkUse(**row) for row in table.to_pylist())
    except FileNotFoundError:
        return ()
    except (pa.ArrowInvalid, TypeError) as error:
        raise NoRunError(f"{path} cannot be read: {error}") from None

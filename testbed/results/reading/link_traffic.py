"""``traffic/links.parquet``: what passed each direction of each link of a run."""

from dataclasses import fields
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from testbed.results.reading.journals import read_parquet, whole
from testbed.results.reading.run_files import Text, Whole


@dataclass(frozen=True, slots=True, config=ConfigDict(allow_inf_nan=False))
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

    link: Whole
    node: Text
    router: Text
    device: bool
    direction: Literal["uplink", "downlink"]
    rate: Whole | None
    delay: float
    bytes: Whole
    frames: Whole | None
    dropped: Whole | None
    seconds: float
    utilisation: float | None


def read_over_links(directory: Path) -> tuple[LinkUse, ...]:
    """Read the table of a run directory; an older run, or one that ended early, has none.

    Raises:
        NoRunError: it cannot be read, or lacks a column.
    """
    path = directory / "traffic" / "links.parquet"
    try:
        with whole(path):
            table = read_parquet(path, [one.name for one in fields(LinkUse)])
            return tuple(TypeAdapter(list[LinkUse]).validate_python(table.to_pylist()))
    except FileNotFoundError:
        return ()

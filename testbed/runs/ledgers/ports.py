"""What passed the server's link by device, port and program, in a run of programs of users."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.device_names import BACKGROUND_NAME, SERVER_NAME
from testbed.runs.ledgers.ledgers import Ledgers
from traffic.accounting import Account

SUMS = ("frames", "wire_bytes", "stream_bytes", "retransmitted_bytes")
"""What is added up of TCP; the stream of UDP is its datagrams."""


class PortKey(NamedTuple):
    """A row's key.

    Attributes:
        direction: ``ingress`` is towards the server.
        device: the device at the other end.
        protocol: ``tcp`` or ``udp``.
        port: the one that was called; 0: fragments of datagrams, which have none.
        program: the program at that port, if it is known.
    """

    direction: str
    device: str
    protocol: str
    port: int
    program: str


def by_port(found: Account, ledgers: Ledgers) -> list[dict[str, Any]]:
    """Return a row for each direction, device and port, the busiest first."""
    sums: defaultdict[PortKey, Counter[str]] = defaultdict(Counter)
    for place, sizes in _flows(found, ledgers):
        sums[place].update(sizes)
    rows = [{**place._asdict(), **{name: sums[place][name] for name in SUMS}} for place in sums]
    return sorted(rows, key=lambda row: (row["direction"] == "egress", -row["wire_bytes"]))


def _flows(found: Account, ledgers: Ledgers) -> Iterator[tuple[PortKey, dict[str, int]]]:
    for flow in found.flows:
        place = _place(found, ledgers, flow, "tcp")
        yield place, {name: int(flow[name]) for name in SUMS}
    for flow in found.datagrams:
        sizes = {name: int(flow[name]) for name in ("frames", "wire_bytes")}
        yield (
            _place(found, ledgers, flow, "udp"),
            sizes | {"stream_bytes": int(flow["payload_bytes"])},
        )


def _place(found: Account, ledgers: Ledgers, flow: npt.NDArray[np.void], protocol: str) -> PortKey:
    source, destination = found.pairs[int(flow["pair"])]
    ports = int(flow["source_port"]), int(flow["destination_port"])
    inward = destination == ledgers.server
    other = source if inward else destination
    device = ledgers.devices.get(other, other)
    here, there = reversed(ports) if inward else ports
    of_server = ledgers.ports.get(f"{SERVER_NAME} {protocol} {here}")
    of_device = ledgers.ports.get(f"{device} {protocol} {there}")
    if protocol == "udp" and int(flow["pair"]) in found.apart:
        port, program = ports[1], BACKGROUND_NAME
    elif of_server is not None:
        port, program = here, of_server
    elif of_device is not None:
        port, program = there, of_device
    else:
        port, program = min(here, there), ""
    return PortKey("ingress" if inward else "egress", device, protocol, port, program)

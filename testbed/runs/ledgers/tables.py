"""Tables of a run's captured traffic: by second and device, by connection, by port and program."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.device_names import BACKGROUND_NAME, SERVER_NAME
from testbed.runs.ledgers.ledgers import Ledgers
from testbed.runs.ledgers.pushes import Integers, Pushes, locate_pushes
from traffic.accounting import QUANTITIES, Account

Names = npt.NDArray[np.str_]
_SUMS = ("frames", "wire_bytes", "stream_bytes", "retransmitted_bytes")
"""The columns of TCP that are added up. UDP has no stream: its datagrams take that column."""


def by_device(found: Account, ledgers: Ledgers, run: Path) -> tuple[pa.Table, pa.Table]:
    """Make tables of an account with the devices' names.

    Seconds count from when training began; from the capture's beginning if it did not. The stream
    bytes of ingress are split into payload and framing by the run's updates; in a run that was cut
    short, or whose server was killed, bytes after a device's last update count as neither.

    Args:
        run: the run directory.

    Returns:
        A row per second, device and direction, and for background traffic per second, pair of devices
        and direction; a row per direction of each connection.
    """
    server = ledgers.server
    began = ledgers.began if ledgers.began is not None else (found.first or 0) / 1e9
    others = [source if to == server else to for source, to in found.pairs]
    sources = [source for source, _ in found.pairs]
    device = np.array(
        [
            BACKGROUND_NAME if pair in found.apart else ledgers.devices.get(*both)
            for pair, both in enumerate(zip(others, sources, strict=True))
        ],
        np.str_,
    )
    direction = np.array(
        ["ingress" if to == server else "egress" for _, to in found.pairs], np.str_
    )
    rows, flows = found.seconds, found.flows
    columns: dict[str, object] = {
        "second": (rows["second"] - int(began)).astype(np.int32),
        "device": device[rows["pair"]],
        "direction": direction[rows["pair"]],
        **{name: rows[name] for name in QUANTITIES},
    }
    pushes = locate_pushes(run, ledgers)
    final = ledgers.final and not ledgers.server_kills
    payload, known = _split(rows, device, direction, pushes, final=final)
    framing = np.where(columns["direction"] == "ingress", known - payload, 0)
    columns |= {"payload_bytes": payload, "framing_bytes": framing}
    names = [name for name in flows.dtype.names or () if name != "pair"]
    ends = {"device": device[flows["pair"]], "direction": direction[flows["pair"]]}
    return pa.table(columns), pa.table(ends | {name: flows[name] for name in names})


def _split(
    rows: npt.NDArray[np.void],
    device: Names,
    direction: Names,
    pushes: Mapping[str, Pushes],
    *,
    final: bool,
) -> tuple[Integers, Integers]:
    """Return the bytes of payload in each row of an account, and the bytes whose kind is known.

    Each push has a known place in its stream. After the last one there is only framing if the run is
    ``final``; otherwise the kind is unknown.

    Args:
        device, direction: of each pair of addresses.
    """
    payload, known = np.zeros((2, len(rows)), np.int64)
    order = np.argsort(rows["pair"], kind="stable")  # by second within each pair, as they are
    starts = np.flatnonzero(np.diff(rows["pair"][order], prepend=-1))
    for mine in np.split(order, starts[1:]):
        if not len(mine):
            continue
        pair = rows["pair"][mine[0]]
        sent = pushes.get(str(device[pair])) if direction[pair] == "ingress" else None
        if sent is None:
            known[mine] = rows["stream_bytes"][mine] if final else 0
            continue
        position = np.cumsum(rows["stream_bytes"][mine])
        payload[mine] = np.diff(sent.payload_before(position), prepend=0)
        known_until = position if final else np.minimum(position, sent.ends[-1])
        known[mine] = np.diff(known_until, prepend=0)
    return payload, known


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


def by_port(found: Account, ledgers: Ledgers) -> list[dict[str, object]]:
    """Return a row for each direction, device and port, the busiest first."""
    sums: defaultdict[PortKey, Counter[str]] = defaultdict(Counter)
    for place, sizes in _flows(found, ledgers):
        sums[place].update(sizes)
    rows = [{**place._asdict(), **{name: sums[place][name] for name in _SUMS}} for place in sums]
    return sorted(rows, key=lambda row: (row["direction"] == "egress", -row["wire_bytes"]))


def _flows(found: Account, ledgers: Ledgers) -> Iterator[tuple[PortKey, dict[str, int]]]:
    for flow in found.flows:
        place = _place(found, ledgers, flow, "tcp")
        yield place, {name: int(flow[name]) for name in _SUMS}
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

"""Tables of a run's captured traffic: by second and device, and by connection."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.device_names import BACKGROUND_NAME
from testbed.runs.ledgers.ledgers import Ledgers
from testbed.runs.ledgers.pushes import Integers, Pushes, locate_pushes
from traffic.accounting import QUANTITIES, Account

Names = npt.NDArray[np.str_]


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
    columns: dict[str, Any] = {
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

"""Show the account of a capture as a table, as JSON and as CSV."""

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from traffic.accounting import Account
from traffic.packet_totals import QUANTITIES, add_up

_HEADINGS = {
    "frames": "frames",
    "wire_bytes": "wire bytes",
    "stream_bytes": "stream",
    "header_bytes": "headers",
    "ack_bytes": "ACKs",
    "connection_bytes": "SYN/FIN/RST",
    "retransmitted_bytes": "sent again",
    "arp_bytes": "ARP/ND",
    "other_bytes": "other",
}


def by_pair(account: Account) -> list[dict[str, object]]:
    """Return ``source``, ``destination`` and ``QUANTITIES`` of each pair, most bytes first."""
    sums = add_up(account.seconds["pair"], account.seconds, len(account.pairs))
    rows: list[dict[str, Any]] = [
        {"source": source, "destination": destination} | dict(zip(QUANTITIES, numbers, strict=True))
        for (source, destination), numbers in zip(account.pairs, sums.tolist(), strict=True)
    ]
    return sorted(rows, key=lambda row: -row["wire_bytes"])


def as_json(account: Account) -> dict[str, Any]:
    """Return the account as a JSON object, without its rows by second; ``udp`` only if there is any."""
    udp = {"udp": [_connection(account, row) for row in account.datagrams]}
    return {
        "first": account.first,
        "last": account.last,
        "dropped": account.dropped,
        "damage": list(account.damage),
        "assumed_segment_sizes": account.assumed,
        "totals": account.totals,
        "pairs": by_pair(account),
        "connections": [_connection(account, row) for row in account.flows],
    } | (udp if len(account.datagrams) else {})


def _connection(account: Account, row: npt.NDArray[np.void]) -> dict[str, object]:
    source, destination = account.pairs[int(row["pair"])]
    names = [name for name in row.dtype.names or () if name != "pair"]
    return {"source": source, "destination": destination} | {n: row[n].item() for n in names}


def write_seconds(account: Account, path: Path) -> None:
    """Write a line per second and pair of addresses, with ``QUANTITIES``."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["second", "source", "destination", *QUANTITIES])
        for row in account.seconds:
            source, destination = account.pairs[int(row["pair"])]
            writer.writerow(
                [int(row["second"]), source, destination, *(int(row[n]) for n in QUANTITIES)]
            )


def show(account: Account, connections: bool) -> None:
    """Print the totals, any warnings, and a table by pair of addresses or by connection.

    With connections there is another table of UDP by ports, if there is any UDP.
    """
    # At least 200 columns: a narrow terminal would cut numbers. All text is as it is: rich would take
    # the parts of addresses that look like it (":ab:") for emoji.
    console = Console(width=max(Console().width, 200), highlight=False, markup=False, emoji=False)
    totals = account.totals
    if account.first is None or account.last is None:
        console.print("no packets")
        return
    began = datetime.fromtimestamp(account.first / 1e9, UTC)
    console.print(
        f"{totals['records']:,} packets in {(account.last - account.first) / 1e9:,.3f} s from "
        f"{began:%Y-%m-%d %H:%M:%S} UTC; {_where(account)}: {totals['frames']:,} frames, "
        f"{totals['wire_bytes']:,} bytes"
    )
    if account.dropped:
        console.print(
            f"{account.dropped:,} packets were dropped by the capture: every number here is too small",
            style="bold red",
        )
    elif account.dropped is None:
        console.print("not all files record whether packets were dropped")
    if account.assumed:
        console.print(
            f"{account.assumed} directions of connections have no SYN in the files: their packets are "
            "split at the segment size of an MTU of 1,500"
        )
    rows = [_connection(account, row) for row in account.flows] if connections else by_pair(account)
    console.print(
        _table(rows, [n for n in _HEADINGS if n == "frames" or any(row[n] for row in rows)])
    )
    if connections and len(account.datagrams):
        console.print("UDP, of which fragments without ports are at port 0:")
        console.print(
            _table(
                [_connection(account, row) for row in account.datagrams],
                ["frames", "wire_bytes", "payload_bytes"],
            )
        )


def _table(rows: list[dict[str, Any]], columns: list[str]) -> Table:
    """Return a table with a row for each pair of addresses, and ports if there are any."""
    table = Table(box=None, pad_edge=False)
    table.add_column("source")
    table.add_column("destination")
    for name in columns:
        table.add_column(_HEADINGS.get(name, "payload"), justify="right")
    for row in rows:
        ports = (row.get("source_port"), row.get("destination_port"))
        ends = [
            text if port is None else f"{text} {port}"
            for text, port in zip((row["source"], row["destination"]), ports, strict=True)
        ]
        table.add_row(*ends, *(f"{row[name]:,}" for name in columns))
    return table


def _where(account: Account) -> str:
    """Return the MTU or the segment size at which the frames are counted, in words."""
    largest = int(account.flows["segment"].max(initial=0))
    if largest <= 1460:
        return "at an MTU of 1,500"
    return f"at the connections' own segment sizes, up to {largest:,} bytes"

"""``testbed traffic``: the traffic at the server's link in a run, counted from the capture's files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from testbed import quantities as q
from testbed.cli.results import AsJson, RunsRoot
from testbed.results.reading.finding import resolve
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.run import Run
from testbed.results.tables.verdict import only_untold
from traffic import TrafficError

_COLUMNS = {
    "frames": "frames",
    "wire_bytes": "wire bytes",
    "stream_bytes": "TCP stream",
    "payload_bytes": "of it payload",
    "framing_bytes": "framing",
    "header_bytes": "headers",
    "ack_bytes": "pure ACKs",
    "connection_bytes": "SYN/FIN/RST",
    "retransmitted_bytes": "sent again",
    "arp_bytes": "ARP",
    "other_bytes": "other",
}


def traffic(
    run: Annotated[str, typer.Argument(help="A run or an execution; 'latest' for the newest.")] = (
        "latest"
    ),
    runs: RunsRoot = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Count a run's captured traffic again, compare its three ledgers, and show each device's bytes."""
    found = resolve(run, runs)
    counted: list[tuple[Run, dict[str, Any]]] = []
    for one in found:
        try:
            counted.append((one, _count(one)))
        except NoRunError as error:
            if len(found) == 1:
                raise
            typer.echo(f"left out: {error}", err=True)
    if as_json:
        typer.echo(json.dumps([what for _, what in counted], indent=2))
        return
    for one, what in counted:
        _show(one, what)


def _count(run: Run) -> dict[str, Any]:
    """Return a run's bytes by direction and device, and the comparison of its ledgers."""
    from testbed.runs.ledgers.ledgers import Ledgers
    from testbed.runs.ledgers.settling import examine

    directory = run.directory / "traffic"
    try:
        ledgers = Ledgers.load(directory)
        if not ledgers.captured:
            raise NoRunError(f"{run.id} was not captured (traffic.capture: false)")
        return {"run": run.id, **examine(ledgers, directory)}
    except TrafficError as error:
        raise NoRunError(str(error)) from error


def _show(run: Run, counted: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    wide = Console(width=max(console.width, 160), highlight=False)
    capture, server = counted["capture"], "the server"
    wide.print(
        f"{run.id}: {capture['records']:,} packets captured, {capture['dropped']:,} dropped, "
        f"{q.as_bytes(capture['bytes'])} in {len(capture['files'])} file(s)"
    )
    for problem in counted["damage"]:
        wide.print(problem)
    table = Table(box=None, pad_edge=False)
    table.add_column("direction")
    table.add_column("device")
    used = [name for name in _COLUMNS if any(row[name] for row in counted["devices"])]
    for name in used:
        table.add_column(_COLUMNS[name], justify="right")
    for direction, text in (("ingress", f"to {server}"), ("egress", f"from {server}")):
        rows = [row for row in counted["devices"] if row["direction"] == direction]
        rows.sort(key=lambda row: -row["wire_bytes"])
        total = {name: sum(row[name] for row in rows) for name in used}
        table.add_row(text, f"all {len(rows)}", *_cells(total, used, direction))
        shown = rows if len(rows) <= 8 else [*rows[:3], *rows[-1:]]
        for row in shown:
            table.add_row("", row["device"], *_cells(row, used, direction))
    wide.print(table)
    if len(counted["devices"]) > 16:
        wide.print("(of each direction the three busiest devices and the idlest; --json has all)")
    wide.print("(pushes that came after the last update are among these bytes)")
    wide.print(_verdict(counted))
    for one in counted["differences"]:
        whose = f" of {one['device']}" if one["device"] else ""
        wide.print(
            f"  {one['ledgers']}{whose}: {one['expected']:,} and {one['found']:,}: {one['reason']}"
        )


def _cells(row: Mapping[str, int], used: Sequence[str], direction: str) -> list[str]:
    """Return numbers as text; payload and framing are known for pushes (ingress) only."""
    unknown = ("payload_bytes", "framing_bytes") if direction == "egress" else ()
    return [q.UNKNOWN if name in unknown else f"{row[name]:,}" for name in used]


def _verdict(counted: dict[str, Any]) -> str:
    match counted["reconciled"]:
        case True:
            return (
                "reconciled: messages equal TCP streams, and the capture equals the kernel's "
                "counter, to the byte"
            )
        case False if only_untold(one["reason"] for one in counted["differences"]):
            return "reconciled, but for streams of a server that was killed:"
        case False:
            return "NOT reconciled:"
        case _:
            return "not compared: the run did not get to its end"

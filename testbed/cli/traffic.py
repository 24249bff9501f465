"""``testbed traffic``: the traffic at the server's link in a run, counted from the capture's files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed import number_text as q
from testbed.cli.options import AnyRun, AsJson, RunsRoot
from testbed.device_names import BACKGROUND_NAME, is_aggregator, is_server
from testbed.display.standard_streams import tell
from testbed.telemetry.json_text import json_text
from testbed.untrusted_text import printable
from traffic import TrafficError

if TYPE_CHECKING:
    from rich.table import Table

    from testbed.results.reading.recorded_run import RecordedRun

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
    run: AnyRun = "latest",
    runs: RunsRoot = Path("runs"),
    as_json: AsJson = False,
    frames: Annotated[
        bool,
        typer.Option(
            "--frames",
            help="Print each captured message instead: when, from whom to whom, what its header says.",
        ),
    ] = False,
    dissector: Annotated[
        bool,
        typer.Option(
            "--dissector",
            help="Print a dissector of the messages for Wireshark and tshark (Lua); needs no run.",
        ),
    ] = False,
) -> None:
    """Count a run's captured traffic, compare its three ledgers, and show each device's bytes."""
    from testbed.results.reading.finding import resolve
    from testbed.results.reading.journals import NoRunError

    if dissector:
        from testbed.dissection.wireshark import dissector as text

        typer.echo(text())
        return
    from testbed.cli.traffic_frames import frames_as_json, show_frames

    found = resolve(run, runs)
    counted: list[tuple[RecordedRun, dict[str, object]]] = []
    for found_run in found:
        try:
            if frames and not as_json:
                show_frames(found_run)
            else:
                count = frames_as_json if frames else _count
                counted.append((found_run, count(found_run)))
        except NoRunError as error:
            if len(found) == 1:
                raise
            tell(f"left out: {error}")
    if as_json:
        told = [counts for _, counts in counted]
        # The messages of one run are one object, in one line, as they are many.
        only = frames and len(found) == 1
        typer.echo(json_text(told[0] if only else told, indent=None if frames else 2))
        return
    for found_run, counts in counted:
        _show(found_run, counts)


def _count(run: "RecordedRun") -> dict[str, object]:
    """Return a run's bytes by direction and device, and the comparison of its ledgers."""
    from testbed.results.reading.journals import NoRunError
    from testbed.runs.ledgers.traffic_account import captured_ledgers, examine

    try:
        return {"run": run.id, **examine(captured_ledgers(run), run.directory / "traffic")}
    except TrafficError as error:
        raise NoRunError(str(error)) from error


def _show(run: "RecordedRun", counted: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    # All text is as it is: a name or a path may look like rich's markup.
    wide = Console(width=max(Console().width, 160), highlight=False, markup=False, emoji=False)

    def say(text: str) -> None:
        wide.print(printable(text))

    capture, there = counted["capture"], printable(_together(counted["captured_at"]))
    dropped = f"{capture['dropped']:,}" if "dropped" in capture else "an unknown number"
    say(
        f"{run.id}: {capture['records']:,} packets captured, {dropped} dropped, "
        f"{q.as_bytes(capture['bytes'])} in {q.as_number(len(capture['files']), 'file')}"
    )
    for problem in counted["damage"]:
        say(problem)
    if any((run.directory / "traffic").glob("earlier-*")):
        say("(of the run's last session; the files of those before it are in traffic/earlier-N)")
    table = Table(box=None, pad_edge=False)
    table.add_column("direction")
    table.add_column("device")
    of_programs = bool(run.manifest.programs)
    unknown = ("payload_bytes", "framing_bytes") if of_programs else ()
    used = [
        name
        for name in _COLUMNS
        if name not in unknown and any(row[name] for row in counted["devices"])
    ]
    for name in used:
        table.add_column(_COLUMNS[name], justify="right")
    for direction, text in (("ingress", f"to {there}"), ("egress", f"from {there}")):
        all_rows = [row for row in counted["devices"] if row["direction"] == direction]
        rows = [row for row in all_rows if row["device"] != BACKGROUND_NAME]
        rows.sort(key=lambda row: -row["wire_bytes"])
        total = {name: sum(row[name] for row in rows) for name in used}
        table.add_row(text, f"all {len(rows)}", *_cells(total, used, direction))
        shown = rows if len(rows) <= 8 else [*rows[:3], *rows[-1:]]
        for row in (*shown, *(row for row in all_rows if row not in rows)):
            table.add_row("", printable(row["device"]), *_cells(row, used, direction))
    wide.print(table)
    if len(counted["devices"]) > 16:
        wide.print(
            "(the three busiest devices of each direction and the least busy; --json has all)"
        )
    if of_programs:
        wide.print(_ports(counted["ports"]) if counted.get("ports") else "(no port was used)")
    else:
        wide.print("(these bytes include pushes that arrived after the last update)")
    wide.print(_verdict(counted, "the kernel's sockets" if of_programs else "messages"))
    for difference in counted["differences"]:
        whose = f" of {difference['device']}" if difference["device"] else ""
        numbers = f"{difference['expected']:,} and {difference['found']:,}"
        say(f"  {difference['ledgers']}{whose}: {numbers}: {difference['reason']}")


def _together(names: Sequence[str]) -> str:
    """Return the devices at whose links was captured: servers, with aggregators, or one peer."""
    aggregators = sum(map(is_aggregator, names))
    servers = len(names) - aggregators
    if len(names) == 1 and not is_server(names[0]):
        return names[0]
    text = "the server" if servers == 1 else f"{servers} servers"
    return f"{text} and {q.as_number(aggregators, 'aggregator')}" if aggregators else text


def _cells(row: Mapping[str, int], used: Sequence[str], direction: str) -> list[str]:
    """Return numbers as text; payload and framing are known for pushes (ingress) only."""
    unknown = ("payload_bytes", "framing_bytes") if direction == "egress" else ()
    return [q.UNKNOWN if name in unknown else f"{row[name]:,}" for name in used]


def _ports(rows: Sequence[Mapping[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("direction", "port", "program"):
        table.add_column(heading)
    for heading in ("devices", "frames", "wire bytes", "stream or datagrams", "sent again"):
        table.add_column(heading, justify="right")
    ports: dict[tuple[str, str, int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = row["direction"], row["protocol"], row["port"], row["program"]
        ports.setdefault(key, []).append(row)
    before = ""
    for (direction, protocol, port, program), own in ports.items():
        way = "to the server" if direction == "ingress" else "from the server"
        names = ("frames", "wire_bytes", "stream_bytes", "retransmitted_bytes")
        sums = [f"{sum(row[name] for row in own):,}" for name in names]
        where = f"{protocol} {port or 'fragments'}"
        name = printable(program) or "–"
        table.add_row("" if way == before else way, where, name, str(len(own)), *sums)
        before = way
    return table


def _verdict(counted: dict[str, Any], first: str) -> str:
    from testbed.results.tables.verdict import only_untold

    match counted["reconciled"]:
        case True:
            return (
                f"reconciled: {first} equal TCP streams, and the capture equals the kernel's "
                "counter, to the byte"
            )
        case False if only_untold(difference["reason"] for difference in counted["differences"]):
            return "reconciled, except for streams of a server or an aggregator that was killed:"
        case False:
            return "NOT reconciled:"
        case _:
            return "not compared: the run has not come to its end"

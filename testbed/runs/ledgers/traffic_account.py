"""The account of a run's traffic at its end, or later: the capture read, and the ledgers compared.

The captured traffic also becomes ``traffic/accounting.parquet``, a row for each second, device and
direction, and ``traffic/connections.parquet``.
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from testbed.device_names import SERVER_NAME
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.ledgers.ledgers import Ledgers
from testbed.runs.ledgers.reconciliation import FILES, LedgerDifference, reconcile
from testbed.runs.ledgers.tables import by_device, by_port
from testbed.telemetry.traffic_files import capture_file
from traffic import TrafficError
from traffic.accounting import Account, account
from traffic.frame_gaps import FrameGaps

_SUMMED = ("records", "dropped", "left_out", "bytes")
"""Numbers of a capture's report that several captures add up to."""


def settle(
    each: Sequence[Ledgers], directory: Path, gaps: FrameGaps | None = None
) -> dict[str, object]:
    """Account for a run's traffic and compare its ledgers.

    Args:
        each: the ledgers of each server, or of the observed peer.
        directory: the run directory's ``traffic``, with the captures' files; gets the tables.
        gaps: gets the gaps between back-to-back packets of an only server's capture.

    Returns:
        The entry of ``summary.json``. ``capture``: its totals, or null; ``reconciled``: true, false, or
        null if there was nothing to compare; ``differences``: where ledgers disagree. With several
        servers the totals are sums, and ``servers`` has these entries of each.
    """
    entries: list[dict[str, object]] = []
    tables: list[tuple[pa.Table, pa.Table]] = []
    for ledgers in each:
        ledgers.save(directory)
        if not ledgers.captured:
            entries.append({"capture": None, "reconciled": None, "differences": []})
            continue
        try:
            found = account(capture_files(directory, ledgers.of), ledgers.ports_apart, gaps)
        except TrafficError as error:
            unread = asdict(LedgerDifference(FILES, None, 0, 0, str(error)))
            capture = ledgers.capture
            entries.append({"capture": capture, "reconciled": False, "differences": [unread]})
            continue
        tables.append(_named(by_device(found, ledgers, directory.parent), ledgers.of))
        entries.append(_compared(found, ledgers, directory))
    if tables:
        pq.write_table(pa.concat_tables(t[0] for t in tables), directory / "accounting.parquet")
        pq.write_table(pa.concat_tables(t[1] for t in tables), directory / "connections.parquet")
    return _together(each, entries)


def _named(tables: tuple[pa.Table, pa.Table], of: str | None) -> tuple[pa.Table, pa.Table]:
    """Add the server's name to tables, if there are several servers."""
    if of is None:
        return tables
    # With its type: a server that has received nothing, as it may in a resumed run, has no row.
    rows, flows = (
        one.append_column("server", pa.array([of] * len(one), pa.string())) for one in tables
    )
    return rows, flows


def _together(each: Sequence[Ledgers], entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of a run from those of its servers."""
    if len(entries) == 1:
        return entries[0]
    servers = {str(one.of): entry for one, entry in zip(each, entries, strict=True)}
    verdicts = [entry["reconciled"] for entry in entries]
    reports = [entry["capture"] for entry in entries]
    capture = None
    if all(reports):
        capture = {name: sum(r.get(name, 0) for r in reports) for name in _SUMMED}
        capture["files"] = [file for r in reports for file in r.get("files", ())]
        capture["error"] = next((r["error"] for r in reports if r.get("error")), None)
        capture["complete"] = all(r.get("complete") for r in reports)
    return {
        "capture": capture,
        "reconciled": None if None in verdicts else all(verdicts),
        "differences": [
            difference | {"server": server}
            for server, entry in servers.items()
            for difference in entry["differences"]
        ],
        "servers": servers,
    }


def examine(each: Sequence[Ledgers], directory: Path) -> dict[str, object]:
    """Do as ``settle`` without writing anything, and add up each device's traffic.

    Returns:
        The result of ``settle``, and ``damage``: what is wrong with the files; ``captured_at``: the
        devices at whose links was captured; ``devices``: totals of each device and direction, where
        ingress is what these received; ``ports``, of programs: those of each device, way and port.

    Raises:
        TrafficError: a capture cannot be read.
    """
    entries: list[dict[str, object]] = []
    damage: list[str] = []
    tables: list[pa.Table] = []
    ports: list[dict[str, object]] = []
    for ledgers in each:
        found = account(capture_files(directory, ledgers.of), ledgers.ports_apart)
        if ledgers.ports or ledgers.sockets is not None:
            ports += by_port(found, ledgers)
        tables.append(by_device(found, ledgers, directory.parent)[0])
        entries.append(_compared(found, ledgers, directory))
        damage += found.damage
    rows = pa.concat_tables(tables)
    keys = ["device", "direction"]
    sums = [name for name in rows.column_names if name not in (*keys, "second")]
    devices = rows.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in sums])
    devices = devices.rename_columns([name.removesuffix("_sum") for name in devices.column_names])
    return {
        **_together(each, entries),
        "damage": damage,
        "captured_at": [one.devices.get(one.server, one.of or SERVER_NAME) for one in each],
        "devices": devices.to_pylist(),
        **({"ports": ports} if ports else {}),
    }


def captured_ledgers(run: RecordedRun) -> list[Ledgers]:
    """Return the ledgers of each server of a run that was captured, or of its observed peer.

    Raises:
        NoRunError: it was not captured, or is a simulation.
        TrafficError: they cannot be read.
    """
    if run.manifest.engine == "simulation":
        raise NoRunError(f"{run.id} is a simulation: its wire bytes are modelled, not captured")
    each = Ledgers.load_all(run.directory / "traffic")
    if not each[0].captured:
        raise NoRunError(f"{run.id} was not captured (traffic.capture: false)")
    return each


def capture_files(directory: Path, of: str | None) -> list[Path]:
    """Return a capture's files: ``ingress.pcapng``, then ``ingress-2.pcapng``, … if they exist.

    Args:
        of: the server's name, of several.
    """
    first = directory / capture_file(of)
    names = (first.with_stem(f"{first.stem}-{n}") for n in itertools.count(2))
    return list(itertools.takewhile(Path.exists, itertools.chain([first], names)))


def _compared(found: Account, ledgers: Ledgers, directory: Path) -> dict[str, object]:
    capture = ledgers.capture or {"error": "the run has not come to its end"}
    if "records" not in capture:  # it could not report its totals: those of its files
        files = capture_files(directory, ledgers.of)
        capture = {
            "records": found.totals["records"],
            **({} if found.dropped is None else {"dropped": found.dropped}),
            "left_out": 0,
            "bytes": sum(path.stat().st_size for path in files),
            "files": [path.name for path in files],
            "error": capture["error"],
            "complete": False,
        }
    differences = reconcile(ledgers, found) if ledgers.final else []
    return {
        "capture": capture,
        "reconciled": not differences if ledgers.final else None,
        "differences": [asdict(difference) for difference in differences],
    }

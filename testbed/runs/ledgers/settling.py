"""The account of a run's traffic at its end, or later: the capture read, and the ledgers compared.

The captured traffic also becomes ``traffic/accounting.parquet``, a row for each second, device and
direction, and ``traffic/connections.parquet``.
"""

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from testbed.runs.ledgers.ledgers import Ledgers
from testbed.runs.ledgers.reconciliation import FILES, Difference, reconcile
from testbed.runs.ledgers.tables import by_device
from traffic import TrafficError
from traffic.accounting import Account, account


def settle(ledgers: Ledgers, directory: Path) -> dict[str, Any]:
    """Account for a run's traffic and compare its ledgers.

    Args:
        directory: the run directory's ``traffic``, with the capture's files; gets the tables.

    Returns:
        The entry of ``summary.json``. ``capture``: its totals, or null; ``reconciled``: true, false, or
        null if there was nothing to compare; ``differences``: where ledgers disagree.
    """
    ledgers.save(directory)
    if not ledgers.captured:
        return {"capture": None, "reconciled": None, "differences": []}
    try:
        found = read_capture(directory)
    except TrafficError as error:
        unread = Difference(FILES, None, 0, 0, str(error))
        return {"capture": ledgers.capture, "reconciled": False, "differences": [asdict(unread)]}
    rows, flows = by_device(found, ledgers, directory.parent)
    pq.write_table(rows, directory / "accounting.parquet")
    pq.write_table(flows, directory / "connections.parquet")
    return _compared(found, ledgers, directory)


def examine(ledgers: Ledgers, directory: Path) -> dict[str, Any]:
    """Do as ``settle`` without writing anything, and add up each device's traffic.

    Returns:
        The result of ``settle``, and ``damage``: what is wrong with the files; ``devices``: totals of
        each device and direction.

    Raises:
        TrafficError: the capture cannot be read.
    """
    found = read_capture(directory)
    rows, _ = by_device(found, ledgers, directory.parent)
    keys = ["device", "direction"]
    sums = [name for name in rows.column_names if name not in (*keys, "second")]
    devices = rows.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in sums])
    devices = devices.rename_columns([name.removesuffix("_sum") for name in devices.column_names])
    return {
        **_compared(found, ledgers, directory),
        "damage": list(found.damage),
        "devices": devices.to_pylist(),
    }


def read_capture(directory: Path) -> Account:
    """Account for the capture files in ``directory``; the account is empty if there are none.

    Raises:
        TrafficError: one cannot be read.
    """
    return account(_files(directory))


def _files(directory: Path) -> list[Path]:
    """Return the capture's files: ``ingress.pcapng``, then ``ingress-2.pcapng``, … if they exist."""
    first = directory / "ingress.pcapng"
    names = itertools.chain([first], (first.with_stem(f"ingress-{n}") for n in itertools.count(2)))
    return list(itertools.takewhile(Path.exists, names))


def _compared(found: Account, ledgers: Ledgers, directory: Path) -> dict[str, Any]:
    capture = ledgers.capture
    if capture is None:
        # The run was cut short, and with it the capture, before it could report its totals.
        files = _files(directory)
        capture = {
            "records": found.totals["records"],
            "dropped": found.dropped or 0,
            "left_out": 0,
            "bytes": sum(path.stat().st_size for path in files),
            "files": [path.name for path in files],
            "error": "the run was cut short",
            "complete": False,
        }
    differences = reconcile(ledgers, found) if ledgers.final else []
    return {
        "capture": capture,
        "reconciled": not differences if ledgers.final else None,
        "differences": [asdict(difference) for difference in differences],
    }

"""The table of a run's captured messages, with the names of devices."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from testbed.dissection.captured_messages import CapturedMessage, read_messages
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.ledgers.ledgers import Ledgers
from testbed.runs.ledgers.reconciliation import flaw_of
from testbed.runs.ledgers.traffic_account import capture_files, captured_ledgers
from testbed.wire.frames import Kind
from testbed.wire.header_fields import meant_fields
from traffic import TrafficError

_TYPES = {"B": pa.string(), "H": pa.int64(), "I": pa.int64(), "Q": pa.uint64(), "f": pa.float32()}
FIELDS = {field.name: _TYPES[field.format] for kind in Kind for field in meant_fields(kind)}
"""The columns of what headers say, with their types."""
_SCHEMA = pa.schema(
    {
        "time": pa.float64(),
        "seconds": pa.float64(),
        "source": pa.string(),
        "destination": pa.string(),
        "kind": pa.string(),
        **FIELDS,
        "bytes": pa.int64(),
        "wire_bytes": pa.int64(),
        "sent_again_bytes": pa.int64(),
        "whole": pa.bool_(),
    }
)


def captured_messages(run: RecordedRun) -> tuple[pa.Table, list[str]]:
    """Return one row for each message in a run's capture, and why some may be missing or not whole.

    Columns: time (seconds since training began; since the first message if it did not begin), seconds
    (from its first byte to its last), source, destination, kind (null if its header was not captured),
    ``FIELDS`` (null where the kind has none), bytes, wire_bytes, sent_again_bytes, whole.

    Raises:
        NoRunError: the run has no messages of the testbed, or its capture cannot be read.
    """
    if run.manifest.programs:
        raise NoRunError(f"{run.id} is a run of programs, which send no messages of the testbed")
    try:
        return _read(captured_ledgers(run), run.directory / "traffic")
    except TrafficError as error:
        raise NoRunError(str(error)) from error


def _read(each: Sequence[Ledgers], directory: Path) -> tuple[pa.Table, list[str]]:
    """Return the table, and what is wrong; ``each``: the ledgers of each captured device."""
    found: list[CapturedMessage] = []
    damage: list[str] = []
    names: dict[str, str] = {}
    for ledgers in each:
        messages, damaged = read_messages(capture_files(directory, ledgers.of))
        found += messages
        flaw = flaw_of(ledgers.capture or {}, damaged)
        damage += dict.fromkeys([*damaged, *([flaw] if flaw else [])])
        names |= ledgers.devices
    found.sort(key=lambda message: message.begin)
    origin = found[0].begin if found else 0
    if each[0].began is not None:
        origin = round(each[0].began * 1e9)
    rows = [
        {
            "time": (one.begin - origin) / 1e9,
            "seconds": (one.end - one.begin) / 1e9,
            "source": names.get(one.direction.source, one.direction.source),
            "destination": names.get(one.direction.destination, one.direction.destination),
            "kind": None if one.kind is None else one.kind.name,
            **one.fields,
            "bytes": one.size,
            "wire_bytes": one.wire_bytes,
            "sent_again_bytes": one.sent_again,
            "whole": one.whole,
        }
        for one in found
    ]
    return pa.Table.from_pylist(rows, _SCHEMA), damage

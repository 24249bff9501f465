"""Traces of faults: CSV files that say which device is struck when, measured or made elsewhere.

A file is read once, when the plan is made; the roles get its content. An error is reported with its
line; nothing is skipped or repaired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.errors import SpecError
from testbed.messages.fault_changes import Kind
from testbed.trace_files import check_names, parse_seconds, read_rows

PLAIN: tuple[Kind, ...] = ("freeze", "kill", "stop-network", "partition")
"""The kinds of faults that need no options, which a row may name."""
_DIGITS = 18
_COLUMNS = ("time", "iteration", "device", "kind", "lasting")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One row of a trace.

    Attributes:
        time: seconds since training began; None where an iteration is given.
        iteration: updates of the model; None where a time is given.
        device: the device's number.
        kind: None: the rule's kind.
        lasting: the duration in seconds; None: the rule's.
    """

    time: float | None
    iteration: int | None
    device: int
    kind: Kind | None
    lasting: float | None


def load_trace(path: Path, devices: Mapping[str, int]) -> list[TraceRow]:
    """Read a trace.

    Args:
        devices: the numbers of the devices that it may name.

    Raises:
        SpecError: the file cannot be read, or a row makes no sense.
    """
    rows = [_row(cells, devices, where) for where, cells in read_rows(path, partial(_check, path))]
    if not rows:
        raise SpecError(f"the trace {path} has no rows: give it one for each fault")
    return rows


def _check(path: Path, heading: Sequence[str]) -> None:
    check_names(path, heading, _COLUMNS)
    if ("time" in heading) == ("iteration" in heading) or "device" not in heading:
        raise SpecError(
            f"the trace {path} needs a column device, and either time or iteration: it has "
            f"{', '.join(heading) or 'no column at all'}"
        )


def _row(cells: Mapping[str, str], devices: Mapping[str, int], where: str) -> TraceRow:
    device = devices.get(cells["device"])
    if device is None:
        names = list(devices)
        # A class may be empty.
        known = f"{len(names)} from {names[0]} to {names[-1]}" if names else "none"
        raise SpecError(
            f"{where}: '{cells['device'][:40]}' is not a device of this rule, which has {known}"
        )
    kind = next((one for one in PLAIN if one == cells.get("kind")), None)
    if cells.get("kind") and kind is None:
        raise SpecError(f"{where}: '{cells['kind'][:40]}' is not one of {', '.join(PLAIN)}")
    lasting = parse_seconds(cells["lasting"], where) if cells.get("lasting") else None
    if lasting == 0:
        raise SpecError(f"{where}: lasts 0 s: nothing would happen")
    if "time" in cells:
        return TraceRow(parse_seconds(cells["time"], where), None, device, kind, lasting)
    number = cells["iteration"]
    few = len(number) <= _DIGITS  # Python reads no number of more than 4,300
    if not (few and number.isascii() and number.isdecimal() and int(number) > 0):
        raise SpecError(f"{where}: '{number[:40]}' is not an iteration, 1 or more")
    return TraceRow(None, int(number), device, kind, lasting)

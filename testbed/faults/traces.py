"""Traces of faults, measured or made up elsewhere: CSV files of which device was struck when.

A file is read once, when the plan is made; the roles get its content. An error is reported with its
line; nothing is skipped or repaired.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import SpecError
from testbed.faults.fault import Kind

PLAIN: tuple[Kind, ...] = ("freeze", "kill", "stop-network", "partition")
"""The kinds of faults that need no options, which a row may name."""
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
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True)
            heading = [column.strip() for column in next(reader, [])]
            _check(path, heading)
            rows = [
                _row(row, heading, devices, f"the trace {path}, line {reader.line_num}")
                for row in reader
                if row  # an empty line is no row
            ]
    except OSError as error:
        reason = error.strerror or error
        raise SpecError(f"the trace {path} cannot be read: {reason}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"the trace {path} is not CSV in UTF-8: {error}") from None
    if not rows:
        raise SpecError(f"the trace {path} has no rows: give it one for each fault")
    return rows


def _check(path: Path, heading: Sequence[str]) -> None:
    for name in heading:
        if name not in _COLUMNS or heading.count(name) > 1:
            text = "more than once" if name in _COLUMNS else "which means nothing here"
            raise SpecError(f"the trace {path} has the column '{name}' {text}")
    if ("time" in heading) == ("iteration" in heading) or "device" not in heading:
        raise SpecError(
            f"the trace {path} needs a column device, and either time or iteration: it has "
            f"{', '.join(heading) or 'no column at all'}"
        )


def _row(
    row: Sequence[str], heading: Sequence[str], devices: Mapping[str, int], where: str
) -> TraceRow:
    if len(row) != len(heading):
        raise SpecError(f"{where}, has {len(row)} columns and not {len(heading)}")
    cells = {name: cell.strip() for name, cell in zip(heading, row, strict=True)}
    device = devices.get(cells["device"])
    if device is None:
        names = list(devices)
        known = f"only {names[0]} to {names[-1]}" if names else "nor any other"  # an empty class
        raise SpecError(f"{where}: there is no device '{cells['device'][:40]}', {known}")
    kind = next((one for one in PLAIN if one == cells.get("kind")), None)
    if cells.get("kind") and kind is None:
        raise SpecError(f"{where}: '{cells['kind'][:40]}' is not one of {', '.join(PLAIN)}")
    lasting = _seconds(cells["lasting"], where) if cells.get("lasting") else None
    if lasting == 0:
        raise SpecError(f"{where}: lasts no time, so that nothing would happen")
    if "time" in cells:
        return TraceRow(_seconds(cells["time"], where), None, device, kind, lasting)
    number = cells["iteration"]
    if not (number.isascii() and number.isdecimal() and int(number) > 0):
        raise SpecError(f"{where}: '{number[:40]}' is not an iteration, 1 or more")
    return TraceRow(None, int(number), device, kind, lasting)


def _seconds(cell: str, where: str) -> float:
    try:
        seconds = math.nan if "_" in cell else float(cell)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        shown = f"'{cell[:40]}'" if cell else "empty"
        raise SpecError(f"{where}: {shown} is not a number of seconds, 0 or more")
    return seconds

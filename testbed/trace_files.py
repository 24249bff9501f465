"""Trace files in CSV: a heading, then a row for each thing that happened.

An error is reported with its line; nothing is skipped or repaired, except that an empty line is no row.
"""

import csv
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from testbed.errors import SpecError
from testbed.untrusted_text import open_file


def read_rows(
    path: Path, check: Callable[[Sequence[str]], object], *, is_no: str = "not CSV in UTF-8"
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place of each row, for messages, and its cells by column, without blanks around them.

    Args:
        check: called with the heading first; raises SpecError if it will not do.
        is_no: what to say of a file that is not CSV.

    Raises:
        SpecError: the file cannot be read, is not CSV, a row has too few or too many cells, or a cell
            goes over the end of its line.
    """
    try:
        with os.fdopen(open_file(path, follow=True), encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True)
            heading = [column.strip() for column in next(reader, [])]
            _check_cells(heading, f"the trace {path}, line 1")
            check(heading)
            for row in filter(None, reader):
                where = f"the trace {path}, line {reader.line_num}"
                _check_cells(row, where)
                if len(row) != len(heading):
                    raise SpecError(f"{where}, has {len(row)} columns and not {len(heading)}")
                yield where, dict(zip(heading, map(str.strip, row), strict=True))
    except OSError as error:
        raise SpecError(f"the trace {path} cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"the trace {path} is {is_no}: {error}") from None


def _check_cells(row: Sequence[str], where: str) -> None:
    """Raise SpecError if a cell has the end of a line in it: a quotation mark lacks its other one."""
    for cell in row:
        if len(cell.splitlines()) > 1:
            raise SpecError(
                f"{where}: a cell goes over the end of the line; is a quotation mark missing?"
            )


def check_names(path: Path, heading: Sequence[str], known: Sequence[str]) -> None:
    """Raise SpecError if a column is not one of the known ones, or is there more than once."""
    for name in heading:
        if name not in known or heading.count(name) > 1:
            text = " more than once" if name in known else f", which is none of {', '.join(known)}"
            raise SpecError(f"the trace {path} has the column '{name}'{text}")


def parse_seconds(value: object, where: str) -> float:
    """Return the seconds in a cell of a trace.

    Raises:
        SpecError: it is not a number, 0 or more; the message begins with ``where``.
    """
    try:
        # Python alone reads 1_000 as a number.
        seconds = math.nan if "_" in str(value) else float(str(value))
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        shown = "empty" if value in (None, "") else f"'{str(value)[:40]}'"
        raise SpecError(f"{where}: {shown} is not a number of seconds, 0 or more")
    return seconds

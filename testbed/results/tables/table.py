"""A table and its printings: lines without boxes, a terminal's table, the report's HTML, and CSV.

The first three have the same text, which none ever cuts: a narrow terminal gets the table turned on its
side. CSV is for programs, and has the exact values of the table's records.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from testbed.results.reading.run_files import State
from testbed.untrusted_text import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

STYLES: dict[State, str] = {
    "completed": "green",
    "diverged": "magenta",
    "disturbed": "magenta",
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "red",
}


class Printed(Protocol):
    """Anything with headings and cells, which this module prints."""

    @property
    def headings(self) -> Sequence[str]:
        """The columns' headings."""

    @property
    def cells(self) -> Sequence[Sequence[str]]:
        """The rows as text, a cell for each heading."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is nothing else."""

    headings: Sequence[str]
    cells: Sequence[Sequence[str]]


def of_words(table: Printed) -> tuple[bool, ...]:
    """Return which columns are aligned to the left: the first, and those of words."""
    columns = zip(*table.cells, strict=True)
    words = [any(cell[:1].isalpha() for cell in column) for column in columns]
    return (True, *(words or [False] * len(table.headings))[1:])


def plain_text(table: Printed) -> str:
    """Return a table as aligned lines without boxes or colours, as wide as it needs to be."""
    lines = [[printable(cell) for cell in line] for line in (table.headings, *table.cells)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = of_words(table)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in lines
    )


def write_csv(
    path: Path, records: Iterable[Mapping[str, object]], columns: Sequence[str] = ()
) -> None:
    """Write a line for each record; an unknown value is an empty field.

    Args:
        columns: the names of the columns; by default the keys of the records, each once.

    Raises:
        OSError: the file cannot be written.
    """
    lines = list(records)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, columns or list(dict.fromkeys(key for one in lines for key in one))
        )
        writer.writeheader()
        writer.writerows(lines)


def for_terminal(table: Printed, width: int) -> "RichTable":
    """Return a table for rich that fits ``width`` characters if it can.

    If it does not fit, every row becomes a column; cells that are still too wide are wrapped, not cut.
    """
    from rich.console import Console
    from rich.measure import Measurement

    upright = _rich(table, turned=False)
    console = Console(width=10_000)
    if Measurement.get(console, console.options, upright).maximum <= width:
        return upright
    return _rich(table, turned=True)


def _rich(table: Printed, turned: bool) -> "RichTable":
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = [[printable(cell) for cell in line] for line in (table.headings, *table.cells)]
    lines = [list(line) for line in (zip(*grid, strict=True) if turned else grid)]
    drawn = RichTable(box=box.SIMPLE_HEAD, header_style="bold")
    words = (True, *[False] * len(table.cells)) if turned else of_words(table)
    for heading, left in zip(lines[0], words, strict=True):
        drawn.add_column(Text(heading), justify="left" if left else "right", overflow="fold")
    styles = {ended: style for ended, style in STYLES.items() if ended != "completed"}
    for line in lines[1:]:
        drawn.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in line))
    return drawn

"""The file of all claims, docs/reproduction/claims.csv, of which pages and overview are written.

It has a row for each claim of the committed pages, of all papers and scales: what the claim is, the
paper's number, ours with its interval, the seeds, the verdict, and the command that measures it again.
"""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from reproduction.claims import Verdict
from reproduction.significance import Decision
from testbed.errors import TestbedError
from testbed.number_text import UNKNOWN, as_number

FILE = Path(__file__).parents[1] / "docs" / "reproduction" / "claims.csv"
_SHOWN = "docs/reproduction/claims.csv"
_COUNTED = re.compile(
    r"(?<=<!-- counted from claims.csv -->\n).*?(?=<!-- end of the counts -->)", re.S
)
_DECISIONS = tuple(Decision)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row of the file; cells are text, and empty where there is nothing to say.

    Attributes:
        paper, scale, part: as on the command line.
        place: the figure or table of the paper, or a variant of one.
        claim: the claim in words; no other of its part has the same.
        published: the number in the paper's sentence.
        ours, low, high: the quantity that decides, and its interval.
        least, most: the bounds between which it has to lie.
        unit: that of these five.
        seeds: their number.
        verdict: a ``Decision``.
        measured: what the quantity is made of, in words.
        command: measures it again.
    """

    paper: str
    scale: str
    part: str
    place: str
    claim: str
    published: str
    ours: str
    low: str
    high: str
    least: str
    most: str
    unit: str
    seeds: str
    verdict: str
    measured: str
    command: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The key that no other row has."""
        return self.paper, self.scale, self.part, self.claim

    @property
    def interval(self) -> str:
        """The quantity that decides, with its interval, as text."""
        if not self.ours:
            return UNKNOWN
        if not self.low and not self.high:
            return f"{self.ours} {self.unit}".rstrip() + ", no interval"
        ends = f"{self.low or 'open'} to {self.high or 'open'}"
        return f"{self.ours} ({ends}) {self.unit}".rstrip()

    @property
    def needed(self) -> str:
        """The bounds of the quantity, as text."""
        if self.least and self.most:
            return f"{self.least} to {self.most}"
        return (
            f"above {self.least}" if self.least else f"below {self.most}" if self.most else UNKNOWN
        )


def row_of(
    verdict: Verdict, *, paper: str, scale: str, part: str, place: str, command: str
) -> Claimed:
    """Return the row of a verdict."""
    found = verdict.decisive
    number = dict.fromkeys(("ours", "low", "high", "least", "most", "unit", "seeds"), "")
    if found:
        number = {
            "ours": _text(found.value),
            "low": _text(found.low),
            "high": _text(found.high),
            "least": _text(found.least),
            "most": _text(found.most),
            "unit": found.unit,
            "seeds": str(found.seeds),
        }
    published = "" if verdict.published is None else _text(verdict.published)
    return Claimed(
        *(paper, scale, part, place, verdict.text),
        published=published,
        verdict=str(verdict.decision),
        measured=verdict.measured,
        command=command,
        **number,
    )


def _text(value: float) -> str:
    """Return two decimals, or three digits of what is less than 1; empty without a bound."""
    if not math.isfinite(value):
        return ""
    value += 0.0  # which makes 0 of -0
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) >= 1 else f"{value:.3g}"


def read(path: Path) -> list[Claimed]:
    """Return the rows of a file; none if there is no such file. Raises TestbedError."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        try:
            return [Claimed(**row) for row in csv.DictReader(file)]
        except TypeError as error:
            raise TestbedError(f"{path} has other columns than a file of claims") from error


def write(path: Path, rows: Sequence[Claimed]) -> list[Claimed]:
    """Put rows in the place of those of the same papers and scales; return all rows of the file."""
    made = {(row.paper, row.scale) for row in rows}
    kept = [row for row in read(path) if (row.paper, row.scale) not in made]
    # Papers and scales are in one order whichever was made last, and claims in that of the pages.
    every = sorted([*kept, *rows], key=lambda row: (row.paper, row.scale))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [one.name for one in fields(Claimed)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, every))
    return every


def difference(known: Iterable[Claimed], made: Sequence[Claimed]) -> list[str]:
    """Return in words how the rows that were made differ from those of the committed file."""
    before = {row.key: row for row in known}
    there = [row for row in made if row.key in before]
    if not there:
        return [f"{_SHOWN} has none of these claims: they are of another scale, paper or part"]
    changed = [row for row in there if row.verdict != before[row.key].verdict]
    moved = [row for row in there if row not in changed and row.ours != before[row.key].ours]
    told = [
        f"{as_number(len(there), 'claim')} compared with {_SHOWN}: {len(changed)} with another "
        f"verdict, {len(moved)} with the same and another number"
    ]
    told += [
        f"  {row.part}: {row.claim}: {before[row.key].verdict} there, {row.verdict} here "
        f"({before[row.key].interval}; {row.interval})"
        for row in changed
    ]
    if fresh := len(made) - len(there):
        told.append(f"  {as_number(fresh, 'claim')} that it does not have")
    return told


def counts(rows: Iterable[Claimed]) -> tuple[str, ...]:
    """Return how many claims hold, do not, are undecided and are not measured."""
    found = [row.verdict for row in rows]
    return tuple(str(found.count(one)) for one in _DECISIONS)


HEADINGS = ("claims that hold", "that do not", "undecided", "not measured")
"""Of the columns of ``counts``."""


def count_into(path: Path, rows: Sequence[Claimed]) -> None:
    """Write the table of the counts of all papers and scales into the overview."""
    groups = dict.fromkeys((row.paper, row.scale) for row in rows)
    cells = []
    for paper, scale in groups:
        of_group = [row for row in rows if (row.paper, row.scale) == (paper, scale)]
        seeds = sorted({int(row.seeds) for row in of_group if row.seeds})
        told = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds))
        cells.append((paper, scale, told or UNKNOWN, *counts(of_group)))
    table = [("paper", "scale", "seeds", *HEADINGS), ("---",) * (3 + len(HEADINGS)), *cells]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in table)
    text = path.read_text(encoding="utf-8")
    path.write_text(_COUNTED.sub(lambda _: f"\n{lines}\n\n", text), encoding="utf-8")

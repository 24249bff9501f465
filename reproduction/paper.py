"""A paper as data that the rest of this package carries out, checks, draws and writes.

A paper is a module of ``reproduction.papers``, or a file, with a ``PAPER``. All that only one paper
knows (its claims, its numbers, its words) is there; nothing else here knows a paper's name.
"""

import csv
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

from reproduction import papers
from reproduction.claims import Claim, Verdict
from reproduction.drawing import Panel
from reproduction.measures import Lines
from reproduction.record import Unshown
from reproduction.series import Scale, Series
from reproduction.tables import Table
from testbed.errors import SpecError, TestbedError

T = TypeVar("T")
Row: TypeAlias = Mapping[str, str]
"""A row of the file: its cells by the headings of their columns, as text."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: tables under a heading, and a remark below them."""

    heading: str
    tables: tuple[Table, ...]
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A figure or a table of a paper, or a variant of one; it has a page of its own.

    Attributes:
        name: ``fig1`` and so on, in the make target, on the command line and of the page.
        title: heading of the page.
        shows: sentences that describe the paper's own figure or table.
        series: its lines or rows, in the paper's order.
        sections: the tables of the page; the overview shows those of the first.
        panels: the figure's panels, from left to right; none if there is no figure.
        claims: what the paper says of it, in its order.
        claims_at_its_scale: claims that only runs as large as the paper's can support.
        caption: what a reader of the figure has to know.
    """

    name: str
    title: str
    shows: str
    series: tuple[Series, ...]
    sections: tuple[Section, ...]
    panels: tuple[Panel, ...] = ()
    claims: tuple[Claim, ...] = ()
    claims_at_its_scale: tuple[Claim, ...] = ()
    caption: str = ""

    def check(self, lines: Lines, scale: Scale) -> tuple[Verdict, ...]:
        """Compare the claims with the lines; those of its own scale only if the runs are as large."""
        large = self.claims_at_its_scale if scale.as_in_paper else ()
        return tuple(claim.check(lines) for claim in (*self.claims, *large))


@dataclass(frozen=True, slots=True)
class Measurement:
    """A part that needs no training: its numbers are measured at once, and kept as a CSV file.

    It has no lines, runs and seeds. The file is among the records of the pages, and the page is made of
    it, as the pages of runs are made of their records.

    Attributes:
        name: as ``Part.name``.
        measure: makes the rows at a scale; all have the same headings.
        part: makes the part, without series, of the rows; without rows nothing is measured yet.
    """

    name: str
    measure: Callable[[Scale], Sequence[Mapping[str, object]]]
    part: Callable[[Sequence[Row]], Part]

    def carry_out(self, scale: Scale, folder: Path) -> None:
        """Measure, unless the pages in a folder have the numbers. Raises TestbedError."""
        path = self.path(folder)
        if path.exists():
            return
        rows = self.measure(scale)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise TestbedError(f"{path} cannot be written ({error.strerror})") from error

    def measured(self, folder: Path) -> Part:
        """Return the part of the numbers that the pages in a folder have."""
        path = self.path(folder)
        if not path.exists():
            return self.part(())
        with path.open(encoding="utf-8", newline="") as file:
            return self.part(list(csv.DictReader(file)))

    def path(self, folder: Path) -> Path:
        """Return the file of the numbers, in a folder of pages."""
        return folder / "records" / f"{self.name}.csv"


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper and its reproduction.

    Attributes:
        name: name on the command line, e.g. ``adacomp``.
        title: heading of the overview.
        reference: authors, title, where and when.
        parts: in the paper's order, at all scales but those of ``parts_at``.
        scales: the first is the usual one; its pages have the notes that a person wrote.
        pages: the folder of the committed pages, with the notes on them in ``notes.md``.
        runs_took: what the paper says of the time that its runs took.
        parts_at: by the name of a scale the parts that are carried out there in place of ``parts``.
        measurements: the parts that need no runs, shown after the others.
        diagnostics: of what the algorithms report with each update, what the pages show: the records
            have no other. If it is not given, they have all.
        unshown: what no page shows of evaluations.
    """

    name: str
    title: str
    reference: str
    parts: tuple[Part, ...]
    scales: tuple[Scale, ...]
    pages: Path
    runs_took: str = ""
    parts_at: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    diagnostics: tuple[str, ...] | None = None
    unshown: Unshown = lambda _spec: ()

    def parts_of(self, scale: Scale) -> tuple[Part, ...]:
        """Return the parts that are carried out at a scale."""
        return self.parts_at.get(scale.name, self.parts)

    def series_of(self, scale: Scale) -> list[Series]:
        """Return the lines of all parts at a scale."""
        return [one for part in self.parts_of(scale) for one in part.series]

    def named(self, name: str, scale: Scale) -> tuple[tuple[Part, ...], tuple[Measurement, ...]]:
        """Return the part or the measurement of a name, or with ``all`` all of them.

        Raises:
            SpecError: there is none of that name at the scale.
        """
        parts, measurements = self.parts_of(scale), self.measurements
        if name == "all":
            return parts, measurements
        at = [one.name for one in self.scales if name in {p.name for p in self.parts_of(one)}]
        if at and scale.name not in at:
            raise SpecError(
                f"{name} of {self.name} is not carried out at scale {scale.name}: "
                f"SCALE={at[0]} (--scale {at[0]})"
            )
        known: dict[str, Part | Measurement] = {one.name: one for one in parts}
        known |= {one.name: one for one in measurements}
        found = _named(known, name, f"part of {self.name}")
        return ((found,), ()) if isinstance(found, Part) else ((), (found,))

    def elsewhere(self, scale: Scale) -> dict[str, list[Part]]:
        """Return by the names of other scales the parts that are carried out there, but not here."""
        here = {one.name for one in self.parts_of(scale)}
        found = {
            name: [one for one in parts if one.name not in here]
            for name, parts in self.parts_at.items()
        }
        return {name: parts for name, parts in found.items() if parts}

    def scale(self, name: str) -> Scale:
        """Return a scale; raise SpecError if there is none of that name."""
        return _named({one.name: one for one in self.scales}, name, f"scale of {self.name}")

    def suffix(self, scale: Scale, before: str = "-") -> str:
        """Return what distinguishes a scale's names from those of the usual scale, for which: empty."""
        return "" if scale is self.scales[0] else f"{before}{scale.name}"


def names() -> dict[str, str]:
    """Return the names of the papers on the command line, with those of their modules."""
    return {one.name.replace("_", "-"): one.name for one in pkgutil.iter_modules(papers.__path__)}


def load_paper(name: str) -> Paper:
    """Return a paper by its name, or from a Python file.

    Raises:
        SpecError: there is no such paper.
    """
    if name.endswith(".py"):
        return _from_file(Path(name))
    known = names()
    module = importlib.import_module(f"{papers.__name__}.{_named(known, name, 'paper')}")
    return _paper_of(module.__dict__, name)


def _from_file(path: Path) -> Paper:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SpecError(f"{path} is no file of a paper")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return _paper_of(module.__dict__, str(path))


def _paper_of(names: Mapping[str, object], where: str) -> Paper:
    paper = names.get("PAPER")
    if not isinstance(paper, Paper):
        raise SpecError(f"{where} has no PAPER")
    return paper


def _named(known: Mapping[str, T], name: str, what: str) -> T:
    if name not in known:
        raise SpecError(f"{name} is no {what}: there are {', '.join(known)}")
    return known[name]

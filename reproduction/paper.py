"""A paper as data that the rest of this package carries out, checks, draws and writes.

A paper is a module of ``reproduction.papers``, or a file, with a ``PAPER``. All that only one paper
knows (its claims, its numbers, its words) is there; nothing else here knows a paper's name.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reproduction import papers
from reproduction.claims import Claim, Verdict
from reproduction.drawing import Panel
from reproduction.measures import Lines
from reproduction.series import Scale, Series
from reproduction.tables import Table
from testbed.errors import SpecError

T = TypeVar("T")


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
class Paper:
    """A paper and its reproduction.

    Attributes:
        name: name on the command line, e.g. ``adacomp``.
        title: heading of the overview.
        reference: authors, title, where and when.
        parts: in the paper's order.
        scales: the first is the usual one; its pages have the notes that a person wrote.
        pages: the folder of the committed pages, with ``notes/NAME.md`` for each of them.
        runs_took: what the paper says of the time that its runs took.
    """

    name: str
    title: str
    reference: str
    parts: tuple[Part, ...]
    scales: tuple[Scale, ...]
    pages: Path
    runs_took: str = ""

    @property
    def series(self) -> list[Series]:
        """The lines of all parts."""
        return [one for part in self.parts for one in part.series]

    def part(self, name: str) -> Part:
        """Return a part; raise SpecError if there is none of that name."""
        return _named({one.name: one for one in self.parts}, name, f"part of {self.name}")

    def scale(self, name: str) -> Scale:
        """Return a scale; raise SpecError if there is none of that name."""
        return _named({one.name: one for one in self.scales}, name, f"scale of {self.name}")

    def suffix(self, scale: Scale, before: str = "-") -> str:
        """Return what distinguishes a scale's names from those of the usual scale, for which: empty."""
        return "" if scale is self.scales[0] else f"{before}{scale.name}"


def load_paper(name: str) -> Paper:
    """Return a paper by its name, or from a Python file.

    Raises:
        SpecError: there is no such paper.
    """
    if name.endswith(".py"):
        return _from_file(Path(name))
    known = {one.name: one.name for one in pkgutil.iter_modules(papers.__path__)}
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

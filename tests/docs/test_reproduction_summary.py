"""The summary of all reproductions: its counts are those of the papers' pages."""

import re

import pytest

from tests.docs.blocks import REPOSITORY

FOLDER = REPOSITORY / "docs" / "reproduction"
_PAPER = re.compile(
    r"^\| \d{3} \[[^\]]+\]\(([a-z-]+)/README\.md\) \|.*?((?:\| \d+ ){3})\|$", re.MULTILINE
)
_PART = re.compile(r"^\| \[.*\]\([a-z0-9-]+\.md\) \| [^|]+ ((?:\| \d+ ){3})\|$", re.MULTILINE)


def _counts(cells: str) -> list[int]:
    return [int(cell) for cell in cells.strip("| ").split("|")]


SUMMED = {
    name: _counts(cells) for name, cells in _PAPER.findall((FOLDER / "README.md").read_text())
}


def test_each_paper_is_in_the_summary() -> None:
    papers = {path.parent.name for path in FOLDER.glob("*/README.md")}
    assert papers == set(SUMMED) != set()


@pytest.mark.parametrize("paper", sorted(SUMMED))
def test_the_claims_are_counted(paper: str) -> None:
    parts = [_counts(cells) for cells in _PART.findall((FOLDER / paper / "README.md").read_text())]
    assert [sum(column) for column in zip(*parts, strict=True)] == SUMMED[paper]

"""The file of all claims: pages and overviews say what it says."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from reproduction import claims_file
from reproduction.claims_file import Claimed
from reproduction.measures import Lines, Target, lines_of
from reproduction.pages import notes
from reproduction.paper import load_paper
from reproduction.records import Records
from reproduction.significance import Decision, duration, fastest, ratio
from tests.docs.blocks import REPOSITORY

FOLDER = REPOSITORY / "docs" / "reproduction"
ROWS = claims_file.read(claims_file.FILE)
GROUPS = list(dict.fromkeys((row.paper, row.scale) for row in ROWS))
_PART = re.compile(r"^\| \[.*\]\(([a-z0-9-]+)\.md\) \| [^|]+ ((?:\| \d+ )+)\|$", re.MULTILINE)


def pages_of(paper: str, scale: str) -> Path:
    found = load_paper(paper)
    return found.pages / found.suffix(found.scale(scale), "")


def counted(rows: Sequence[Claimed]) -> list[int]:
    count = Counter(row.verdict for row in rows)
    return [count[decision] for decision in Decision]


def test_each_row_is_of_one_claim_and_has_a_verdict() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS) > 100
    assert {row.verdict for row in ROWS} <= set(Decision)
    with claims_file.FILE.open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == [one.name for one in fields(Claimed)]
    for row in ROWS:
        assert row.command.startswith(f"make reproduce PAPER={row.paper} PART={row.part}")
        if row.verdict in (Decision.HOLDS, Decision.FAILS) and row.ours:
            bounds = [float(row.least or "-inf"), float(row.most or "inf")]
            low, high = float(row.low or "-inf"), float(row.high or "inf")
            inside = bounds[0] <= low and high <= bounds[1]
            assert inside is (row.verdict == Decision.HOLDS), row


@pytest.mark.parametrize("paper", sorted({paper for paper, _ in GROUPS}))
def test_what_a_person_wrote_stands_on_a_page(paper: str) -> None:
    pages = load_paper(paper).pages
    for name, written in notes(pages).items():
        page = next(one for one in (pages, *pages.iterdir()) if (one / f"{name}.md").is_file())
        assert f"\n\n{written}\n" in (page / f"{name}.md").read_text(encoding="utf-8"), name


@pytest.mark.parametrize(("paper", "scale"), GROUPS)
def test_the_pages_say_what_the_file_says(paper: str, scale: str) -> None:
    folder, rows = pages_of(paper, scale), [r for r in ROWS if (r.paper, r.scale) == (paper, scale)]
    for part in dict.fromkeys(row.part for row in rows):
        _, _, section = (folder / f"{part}.md").read_text().partition("## Claims\n\n")
        table = section.partition("\n\n")[0].splitlines()[2:]
        told = [[cell.strip("* ") for cell in line.strip("|").split(" | ")] for line in table]
        assert [line[:2] for line in told] == [
            [row.claim, row.verdict] for row in rows if row.part == part
        ]
    overview = dict(_PART.findall((folder / "README.md").read_text()))
    for part, cells in overview.items():
        of_part = [row for row in rows if row.part == part]
        assert [int(cell) for cell in cells.strip("| ").split("|")] == counted(of_part), part


def test_the_overview_counts_the_file() -> None:
    text = (FOLDER / "README.md").read_text()
    for paper, scale in GROUPS:
        rows = [row for row in ROWS if (row.paper, row.scale) == (paper, scale)]
        (cells,) = re.findall(rf"^\| {paper} \| {scale} \| [^|]+ ((?:\| \d+ )+)\|$", text, re.M)
        assert [int(cell) for cell in cells.strip("| ").split("|")] == counted(rows)
    papers = {path.parent.name for path in FOLDER.glob("*/README.md")}
    assert papers == {paper for paper, _ in GROUPS}


def lines_of_part(paper: str, scale: str, part: str) -> Lines:
    found = load_paper(paper)
    of_scale = found.scale(scale)
    (one,), _ = found.named(part, of_scale)
    return lines_of(one.series, of_scale, of_scale.seeds, Records(pages_of(paper, scale)))


@pytest.mark.parametrize("part", ["fig3", "fig3-wide"])
def test_the_overviews_have_the_bytes_of_adacomps_records(part: str) -> None:
    lines = lines_of_part("adacomp", "full", part)
    asgd, adacomp = (lines[name].reaching(Target(97.0)) for name in ("asgd", "adacomp-0.01"))
    times = [f"{asgd[seed].wire_bytes / adacomp[seed].wire_bytes:.0f}" for seed in sorted(adacomp)]
    told = f"{' and '.join([', '.join(times[:-1]), times[-1]] if times[1:] else times)} times fewer"
    assert told in (FOLDER / "README.md").read_text()
    assert (told in (REPOSITORY / "README.md").read_text()) is (part == "fig3")


@pytest.mark.parametrize(
    ("part", "ako", "told"),
    [
        ("fig8", "ako-8", "({} times faster to 95 % of MNIST"),
        ("fig8-network", "ako", "{} times with the [paper's own network]"),
    ],
)
def test_ako_is_compared_with_the_best_allocation_of_servers(
    part: str, ako: str, told: str
) -> None:
    lines, target = lines_of_part("ako", "cpu", part), Target(95.0)
    servers = fastest([duration(lines[name], target) for name in ("ps-7+1", "ps-6+2")])
    times = ratio(servers, duration(lines[ako], target)).times().value
    assert told.format(f"{times:.1f}") in (FOLDER / "README.md").read_text()

"""The figures that the pages print were measured: each is in a record of ``docs/records``.

``bench.records`` makes the records, and documents how a page names the record that it prints.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import records
from bench.records import FOLDER, SOURCES
from reproduction import record_files
from tests.docs.blocks import PAGES, REPOSITORY

_REGION = re.compile(
    r"<!-- record (\S+): (lines|figures) -->\n(.*?)<!-- end of record -->", re.DOTALL
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


@dataclass(frozen=True)
class Region:
    """A part of a page that prints a record, or figures of one."""

    page: str
    record: str
    how: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}, {self.record}"


def regions() -> list[Region]:
    found = []
    for page in sorted(PAGES):
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        matches = _REGION.findall(text)
        assert text.count("<!-- record ") == text.count("<!-- end of record -->") == len(matches), (
            page
        )
        found += [Region(page, *match) for match in matches]
    return found


def not_in_record(region: Region, folder: Path) -> list[str]:
    """Return the lines, or the numbers, that a page has and its record does not."""
    said = "\n".join(
        path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".txt", ".json", ".yaml")
    )
    if region.how == "lines":
        known = {line.strip() for line in said.splitlines()}
        lines = (line.strip() for line in region.text.splitlines())
        return [line for line in lines if line and not line.startswith("```") and line not in known]
    numbers = {number.replace(",", "") for number in _NUMBER.findall(said)}
    return [n for n in _NUMBER.findall(region.text) if n.replace(",", "") not in numbers]


@pytest.mark.parametrize("region", regions(), ids=str)
def test_a_page_prints_only_what_is_in_its_record(region: Region) -> None:
    assert region.record in SOURCES, "bench.records does not make it"
    assert not_in_record(region, FOLDER / region.record) == []


def test_every_record_is_printed_and_says_how_it_was_made() -> None:
    made = {path.parent.name for path in FOLDER.glob("*/record.json")}
    assert made == {region.record for region in regions()} == set(SOURCES)
    for name in made:
        about = json.loads((FOLDER / name / "record.json").read_bytes())
        assert len(about["commands"]) == len(SOURCES[name].commands)
        assert re.fullmatch(r"[0-9a-f]{40}", about["commit"]), f"{name}: made of changed code"
        output = (FOLDER / name / "output.txt").read_text(encoding="utf-8")
        assert all(f"$ {command}\n" in output for command in about["commands"])


def test_a_record_holds_the_output_of_commands_and_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ("training.updates=20", "devices.workers=2", "algorithms=[asgd]", "model=mlp")
    options = [word for one in short for word in ("--set", one)]
    commands = (
        ("testbed", "simulate", "experiments/quickstart.yaml", "--no-report", *options),
        ("testbed", "show", "quickstart/*/asgd"),
        ("testbed", "compare", "quickstart/*", "--out", "accuracy.png"),
    )
    monkeypatch.setitem(SOURCES, "small", records.Source(commands))
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    folder = records.make("small", "0" * 40)
    assert folder == tmp_path / "small"
    printed = (folder / "output.txt").read_text(encoding="utf-8")
    assert "$ testbed simulate experiments/quickstart.yaml --no-report --set" in printed
    assert "$ testbed show 'quickstart/*/asgd'\n" in printed
    # The second command shows the run that the first one made.
    assert re.search(r"^ *run +quickstart/\S+/asgd$", printed, re.MULTILINE)
    assert (folder / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert list(record_files.read(folder)) == ["quickstart-1-asgd"]
    monkeypatch.setitem(SOURCES, "small", records.Source((("testbed", "show", "nothing"),)))
    with pytest.raises(SystemExit, match="testbed show nothing ended with status 2"):
        records.make("small", "0" * 40)


def test_a_figure_that_was_not_measured_is_named(tmp_path: Path) -> None:
    (tmp_path / "output.txt").write_text("asgd  1,000  95.21\nof 20 workers\n")
    figures = Region("page", "some", "figures", "| ASGD | 95.21 % | 95.22 % | 1,000 | 20 |")
    assert not_in_record(figures, tmp_path) == ["95.22"]
    lines = Region("page", "some", "lines", "```\nasgd  1,000  95.21\nasgd  1,000  95.22\n```\n")
    assert not_in_record(lines, tmp_path) == ["asgd  1,000  95.22"]

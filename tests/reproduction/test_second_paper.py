"""A second paper is a file: its runs, claims, tables and figure need no change of the engine."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from reproduction import record_files
from reproduction.__main__ import main
from reproduction.paper import load_paper, names
from testbed.errors import SpecError
from testbed.number_text import UNKNOWN
from tests.end_to_end.conftest import CommandLine

INVENTED = Path(__file__).with_name("invented.py")


def reproduce(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = CommandLine(out, "reproduction")
    return line.do(*arguments, "--paper", INVENTED, "--engine", "simulation", "--out", out)


def test_a_paper_in_a_file_is_carried_out_and_has_its_pages(tmp_path: Path) -> None:
    ran = reproduce(tmp_path, "all", "--seeds", "1,2")
    assert ran.returncode == 0, ran.stderr
    assert "8 runs at scale usual, 0 of them complete" in ran.stdout
    pages = tmp_path / "pages" / "usual"
    page = (pages / "fig1.md").read_text()
    assert "`make reproduce PAPER=invented PART=fig1`; scale usual; runs of 4 of 4 lines" in page
    (row,) = re.findall(r"\| ASGD, n = 4 \| (.+) ± (.+) \(2 seeds\) \| 2 of 2 \| .+ s \|", page)
    assert 10 < float(row[0]) < 100 and float(row[1]) < 50
    assert f"| 4 | {row[0]} ± {row[1]} (2 seeds) |" in page
    # Two seeds do not agree closely on the quotient, and do on the difference.
    assert "| four workers are faster than two | **undecided** |" in page
    assert "| ASGD, n = 4 takes longer than ASGD, n = 2 | **does not hold** |" in page
    assert "docs/reproduction/claims.csv has none of these claims" in ran.stdout
    assert "in 0 of 2 seeds" in page
    assert "<svg" in (pages / "fig1.svg").read_text()
    assert (
        "[Fig. 1: more workers take less time](fig1.md) | 4 of 4 | 0 | 1 | 1 | 0 |"
        in (pages / "README.md").read_text()
    )
    records = record_files.read(pages / "records")
    assert len(records) == 8
    one = "invented-asgd-devices.workers-2-seed1-simulator"
    times = records[one].evaluations.time.tolist()
    assert times == sorted(times) and times[-1] > 1
    (delay,) = re.findall(r"\| ASGD, n = 4 \| (.+) ± .+ \(2 seeds\) \|\n", page)
    assert 3 < float(delay) < 5
    assert f"| All-to-All, n = 4 | {UNKNOWN} |\n" in page
    # On a host without the runs: what the pages have a record of is not made again.
    shutil.rmtree(tmp_path / "invented")
    path = pages / "records" / "runs.yaml"
    described = yaml.safe_load(path.read_text())
    del described["runs"][one]
    path.write_text(yaml.safe_dump(described, sort_keys=False))
    ran = reproduce(tmp_path, "all", "--seeds", "1,2")
    assert "8 runs at scale usual, 7 of them complete" in ran.stdout
    results, _, _ = page.partition("## Runs")
    assert (pages / "fig1.md").read_text().startswith(results)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("fig2",), "fig2 is no part of invented: there are fig1"),
        (("fig1", "--scale", "full"), "full is no scale of invented: there are usual, short"),
        (
            ("fig1", "--only", "sgd"),
            "--only sgd: there are all-to-all-2, all-to-all-4, asgd-2, asgd-4",
        ),
    ],
)
def test_what_a_paper_does_not_have_is_refused(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--paper", str(INVENTED)])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"reproduction: {told}\n"


@pytest.mark.usefixtures("undrawn")
def test_all_papers_have_a_folder_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pages", "--paper", "all", "--scale", "tiny", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert told.count("has none of these claims") == len(names()) > 3
    for name in names():
        page = (tmp_path / name / "pages" / "tiny" / "README.md").read_text()
        assert f"`make reproduce PAPER={name} SCALE=tiny`" in page


def test_a_paper_is_found_by_its_name() -> None:
    assert load_paper("adacomp").title == "The AdaComp paper, reproduced"


@pytest.mark.parametrize("text", [None, "PAPER = 1\n"])
def test_what_is_no_paper_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "other.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(
        SpecError, match="is no file of a paper" if text is None else "has no PAPER"
    ):
        load_paper(str(path))
    with pytest.raises(SpecError, match="adcomp is no paper: there are adacomp"):
        load_paper("adcomp")

"""The AdaComp paper's experiments at a tiny scale, as ``make adacomp`` carries them out."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from reproduction import record_files
from reproduction.papers.adacomp.parts import PARTS
from testbed.results.reading.finding import find
from tests.end_to_end.conftest import REPOSITORY, CommandLine, Started

pytestmark = pytest.mark.real
ONLY = (
    "asgd,adacomp-0.01,comp-asgd-0.1-per-tensor,comp-asgd-random,adacomp-0.0001,"
    "60000-crashes,6000,60000-three-0.01"
)
"""A line or two of each part: with them every kind of experiment, table and figure."""
LINES = {
    "fig1": 1,
    "fig3": 2,
    "fig3-even": 2,
    "fig3-wide": 2,
    "fig3-per-tensor": 1,
    "selection": 4,
    "table2": 2,
    "fig4": 2,
}
"""Complete lines by part: one of Fig. 3 is that of Fig. 1, two of selection are Fig. 3's, and one of
fig3-wide is in Fig. 4, too."""
RUNS = sum(LINES.values()) - 4


def reproduce(out: Path, *arguments: str) -> Started:
    """Start ``python -m reproduction`` for runs and pages in a folder."""
    line = CommandLine(out, "reproduction")
    return line.start(*arguments, "--scale", "tiny", "--at-once", "1", "--out", out)


def told_by(started: Started) -> str:
    """Return what a command that ends well has written."""
    assert started.wait(300) == 0, started.said
    return started.output.read_text()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of every part of the paper, simulated, and the pages made of them."""
    folder = tmp_path_factory.mktemp("reproduction")
    told = told_by(reproduce(folder, "all", "--engine", "simulation", "--only", ONLY))
    assert f"{RUNS} runs at scale tiny, 0 of them complete" in told
    return folder


def test_every_kind_of_experiment_runs_and_has_its_page(out: Path) -> None:
    runs = [run for execution in find(out) for run in execution.runs]
    assert len(runs) == RUNS
    assert {run.ended for run in runs} == {"completed"}
    pages = out / "pages" / "tiny"
    for part in PARTS:
        page = (pages / f"{part.name}.md").read_text()
        told = f"runs of {LINES[part.name]} of {len(part.series)} lines are complete"
        assert told in page
        assert "This is not the paper's scale" in page
        assert f"of scale full: `docs/reproduction/adacomp/{part.name}.md`" in page
        assert (pages / f"{part.name}.svg").stat().st_size > 9_000
    records = record_files.read(pages / "records")
    assert [len(one.evaluations) for one in records.values()] == [11] * RUNS


def test_workers_crash_and_classes_send_what_they_can(out: Path) -> None:
    page = (out / "pages" / "tiny" / "table2.md").read_text()
    crashed = [int(n) for n in re.findall(r"crashes, n = 200 \| (\d+) of 10 \|", page)]
    assert len(crashed) == 1 and all(0 < count <= 10 for count in crashed)
    assert re.findall(r"no crash, n = \d+ \| (\d+) of \d+ \|", page) == ["0"]
    page = (out / "pages" / "tiny" / "fig4.md").read_text()
    sent = {name: int(n) for name, n in re.findall(r"\| 1 \| (\w+) \| [34] \| (\d+) \|", page)}
    assert sent["fast"] > sent["medium"] > sent["slow"] >= 0
    assert sum(sent.values()) == 40


def test_complete_runs_are_not_carried_out_again(out: Path) -> None:
    before = len(find(out))
    only = ("--only", "asgd,adacomp-0.01")
    told = told_by(reproduce(out, "fig3", "--engine", "simulation", *only))
    assert "2 runs at scale tiny, 2 of them complete" in told
    assert len(find(out)) == before


@pytest.mark.exercises("namespaces")
def test_namespaces_end_with_the_same_bits(out: Path) -> None:
    told_by(reproduce(out, "fig3", "--engine", "namespaces", "--only", "adacomp-0.01"))
    page = (out / "pages" / "tiny" / "fig3.md").read_text()
    (row,) = (line for line in page.splitlines() if "| namespaces |" in line)
    assert "| reconciled |" in row
    assert "| equal; wire modelled ÷ measured" in row


def test_an_interrupted_reproduction_goes_on(tmp_path: Path) -> None:
    arguments = ("fig3", "--engine", "simulation", "--only", "asgd,adacomp-0.01")
    started = reproduce(tmp_path, *arguments)
    started.until(lambda: "adacomp tiny: 0 of 2 runs" in started.said, "the runs")
    children = started.process.children(recursive=True)
    assert children
    started.interrupt()
    assert started.wait() == 128 + signal.SIGINT
    assert not [child for child in children if child.is_running()]
    assert "goes on where it stopped" in started.said
    told_by(reproduce(tmp_path, *arguments))
    runs = [run for execution in find(tmp_path) for run in execution.runs]
    complete = sorted(run.algorithm for run in runs if run.ended == "completed")
    assert complete == ["adacomp-0.01", "asgd"]


@pytest.mark.parametrize("what", [*(part.name for part in PARTS), "all"])
def test_make_has_a_target_for_every_part(what: str) -> None:
    target = "adacomp" if what == "all" else f"adacomp-{what}"
    told = subprocess.run(
        ["make", "-n", target, "SCALE=quick", "ENGINE=simulation", "SEEDS=1,2"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"-m reproduction {what} --paper adacomp --engine simulation --scale quick" in told
    assert "--seeds 1,2" in told

"""The AdaComp paper's experiments at a tiny scale, as ``make adacomp`` carries them out."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from reproduction import record_files
from reproduction.papers.adacomp.parts import PARTS
from testbed.results.reading.finding import find
from tests.end_to_end.conftest import REPOSITORY, until

LONG = 1200
"""Seconds that all 31 runs may take on a busy host."""
pytestmark = [pytest.mark.real, pytest.mark.timeout(LONG)]


def command(out: Path, *arguments: str) -> list[str]:
    how = ("--scale", "tiny", "--at-once", "1", "--out", str(out))
    return [sys.executable, "-m", "reproduction", *arguments, *how]


def reproduce(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(out, *arguments), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every run of the paper, simulated, and the pages made of them."""
    folder = tmp_path_factory.mktemp("reproduction")
    ran = reproduce(folder, "all", "--engine", "simulation")
    assert ran.returncode == 0, ran.stderr
    assert "31 runs at scale tiny, 0 of them complete" in ran.stdout
    return folder


def test_every_experiment_runs_and_has_its_page(out: Path) -> None:
    runs = [run for execution in find(out) for run in execution.runs]
    assert len(runs) == 31
    assert {run.ended for run in runs} == {"completed"}
    pages = out / "pages" / "tiny"
    for part in PARTS:
        page = (pages / f"{part.name}.md").read_text()
        assert f"runs of {len(part.series)} of {len(part.series)} lines are complete" in page
        assert "This is not the paper's scale" in page
        assert f"of scale full: `docs/reproduction/adacomp/{part.name}.md`" in page
        assert (pages / f"{part.name}.svg").stat().st_size > 10_000
    records = record_files.read(pages / "records")
    assert [len(one.evaluations) for one in records.values()] == [11] * 31


def test_workers_crash_and_classes_send_what_they_can(out: Path) -> None:
    page = (out / "pages" / "tiny" / "table2.md").read_text()
    crashed = [int(n) for n in re.findall(r"crashes, n = 200 \| (\d+) of 10 \|", page)]
    assert len(crashed) == 2 and all(0 < count <= 10 for count in crashed)
    assert re.findall(r"no crash, n = \d+ \| (\d+) of \d+ \|", page) == ["0", "0", "0"]
    page = (out / "pages" / "tiny" / "fig4.md").read_text()
    sent = {name: int(n) for name, n in re.findall(r"\| 1 \| (\w+) \| [34] \| (\d+) \|", page)}
    assert sent["fast"] > sent["medium"] > sent["slow"] >= 0
    assert sum(sent.values()) == 100


def test_complete_runs_are_not_carried_out_again(out: Path) -> None:
    before = len(find(out))
    ran = reproduce(out, "fig3", "--engine", "simulation")
    assert ran.returncode == 0, ran.stderr
    assert "5 runs at scale tiny, 5 of them complete" in ran.stdout
    assert len(find(out)) == before


@pytest.mark.exercises("namespaces")
def test_namespaces_end_with_the_same_bits(out: Path) -> None:
    ran = reproduce(out, "fig3", "--engine", "namespaces", "--only", "adacomp-0.01")
    assert ran.returncode == 0, ran.stderr
    page = (out / "pages" / "tiny" / "fig3.md").read_text()
    (row,) = (line for line in page.splitlines() if "| namespaces |" in line)
    assert "| reconciled |" in row
    assert "| equal; wire modelled ÷ measured" in row


def test_an_interrupted_reproduction_goes_on(tmp_path: Path) -> None:
    arguments = command(tmp_path, "fig3", "--engine", "simulation", "--only", "asgd,adacomp-0.01")
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr:
        driver = psutil.Popen(
            arguments,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    until(lambda: "adacomp tiny: 0 of 2 runs" in errors.read_text(), "the runs", 120)
    children = driver.children(recursive=True)
    assert children
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(60) == 128 + signal.SIGINT
    assert not [child for child in children if child.is_running()]
    assert "goes on where it stopped" in errors.read_text()
    ran = reproduce(tmp_path, "fig3", "--engine", "simulation", "--only", "asgd,adacomp-0.01")
    assert ran.returncode == 0, ran.stderr
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

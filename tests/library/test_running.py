"""Runs that a program carries out: the same as the command line's, and Ctrl-C leaves nothing."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import testbed
from testbed.errors import DataError, RunError
from tests.end_to_end.conftest import CommandLine, until
from tests.library.conftest import SMALL, Simulated

EMULATED = """
import sys, testbed
experiment = testbed.Experiment.load(sys.argv[1]).with_(training__updates=100_000)
try:
    testbed.run(experiment, out=sys.argv[2])
except KeyboardInterrupt as interrupt:
    print(interrupt)
"""


def test_a_run_ends_as_the_command_lines(simulated: Simulated, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    command = CommandLine(tmp_path)
    try:
        assert command.start("simulate", path, "--no-report").wait(60) == 0
    finally:
        command.close()
    theirs = testbed.open_runs(tmp_path / "runs" / "small")
    assert theirs.names == simulated.runs.names == ("asgd", "adacomp-0.01")
    for one, other in zip(theirs, simulated.runs, strict=True):
        assert one.summary.parameters_sha256 == other.summary.parameters_sha256
        assert one.evaluations().equals(other.evaluations())


def test_torch_has_its_threads_afterwards(simulated: Simulated, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        short = testbed.Experiment.parse(SMALL).with_(training__updates=3, algorithms=["asgd"])
        testbed.simulate(short, out=tmp_path, progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_progress_goes_to_standard_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    short = testbed.Experiment.parse(SMALL).with_(training__updates=3, algorithms=["asgd"])
    runs = testbed.simulate(short, out=tmp_path, report=True)
    assert "asgd: training" in capfd.readouterr().err
    assert (runs.directory / "report.html").exists()


def test_what_cannot_be_begun_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="mnist"):
        testbed.simulate(
            testbed.Experiment.parse(SMALL).with_(
                dataset__name="mnist", dataset__train_images=10**6
            ),
            out=tmp_path,
        )
    caught: list[Exception] = []

    def elsewhere() -> None:
        try:
            testbed.simulate(testbed.Experiment.parse(SMALL), out=tmp_path)
        except RunError as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_ctrl_c_in_a_program_leaves_nothing_but_the_runs_directory(tmp_path: Path) -> None:
    (path := tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    started = subprocess.Popen(
        [sys.executable, "-c", EMULATED, str(path), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    until(lambda: list(tmp_path.glob("small/*/asgd/curve.csv")), "an evaluation")
    curve = next(tmp_path.glob("small/*/asgd/curve.csv"))
    until(lambda: len(curve.read_text().splitlines()) > 2, "a second evaluation")
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=60)
    assert started.returncode == 0
    assert "asgd interrupted: stopped by SIGINT" in said
    run = testbed.open_run(curve.parent)
    assert run.summary.ended == "interrupted"
    assert run.summary.updates > 0

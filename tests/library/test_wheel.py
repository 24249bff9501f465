"""The wheel: installed by pip in an environment of its own, it works outside of the repository."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from testbed.code_digest import package_digest
from tests.docs.blocks import REPOSITORY
from tests.library.conftest import SMALL

PROGRAM = """
import pathlib, testbed
from testbed.code_digest import package_digest
runs = testbed.simulate("small.yaml", report=True)
print(pathlib.Path(testbed.__file__).parent)
print(package_digest())
print(len(runs.curve()), (runs.directory / "report.html").stat().st_size)
testbed.compare(runs).figure().save("figure.svg")
own = testbed.Experiment.load("pictures.yaml").with_(training__updates=20)
print(testbed.simulate(own).only.summary.parameters_sha256)
"""
"""One program, as an interpreter with torch takes seconds."""


def do(*words: str | Path, cwd: Path, **environment: str) -> str:
    # Neither the folder of the tests nor the repository may be where modules are found.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with the wheel alone; other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    for package in ("testbed", "traffic", "fastgrad"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, sources / package, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / file, sources)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    pip = (sys.executable, "-m", "pip")
    do(*pip, "wheel", *quiet, "--no-build-isolation", "-w", folder, sources, cwd=folder)
    (wheel,) = folder.glob("testbed-*.whl")
    do(sys.executable, "-m", "venv", "--without-pip", folder / "environment", cwd=folder)
    python = folder / "environment" / "bin" / "python"
    do(*pip, "--python", python, "install", *quiet, wheel, cwd=folder)
    (packages,) = (folder / "environment").glob("lib/python*/site-packages")
    # The tests' own packages come after the wheel's; the repository itself is not among them.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    shutil.rmtree(sources)
    return folder / "environment"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the repository with experiments, and code and data of one's own."""
    path = tmp_path_factory.mktemp("outside")
    (path / "small.yaml").write_text(SMALL, encoding="utf-8")
    shutil.copytree(REPOSITORY / "examples" / "plugin", path, dirs_exist_ok=True)
    return path


@pytest.fixture(scope="module")
def said(installed: Path, folder: Path) -> list[str]:
    """The last four lines that ``PROGRAM`` prints."""
    return do(installed / "bin" / "python", "-c", PROGRAM, cwd=folder).splitlines()[-4:]


def test_a_program_outside_of_the_repository_uses_the_wheel(
    installed: Path, folder: Path, said: list[str]
) -> None:
    where, digest, sizes, _ = said
    assert Path(where).is_relative_to(installed)
    assert digest == package_digest()  # so that every file of the code is in the wheel
    rows, report = map(int, sizes.split())
    assert rows == 8
    assert report > 100_000
    assert "<svg" in (folder / "figure.svg").read_text(encoding="utf-8")


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_code_and_data_of_ones_own_run_with_the_wheel(
    installed: Path, folder: Path, said: list[str]
) -> None:
    options = ("--no-report", "--set", "training.updates=20", "--out", "emulated")
    printed = do(installed / "bin" / "testbed", "run", "pictures.yaml", *options, cwd=folder)
    assert "the three ledgers agree in 1 of 1 run" in printed
    (summary,) = (folder / "emulated").glob("*/*/*/summary.json")
    assert json.loads(summary.read_bytes())["parameters_sha256"] == said[-1]

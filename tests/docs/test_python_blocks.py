"""The Python blocks: the example algorithms and their test, put where the page says, and run.

A copy of the package gets the modules and, as the page says, a line for each in ``ALGORITHMS``. In
the copy, the page's experiment file is simulated and emulated, and the page's test is run.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.docs.blocks import REPOSITORY, Block, blocks
from tests.docs.test_library_blocks import PAGES as OF_THE_LIBRARY
from tests.docs.test_tutorial import PAGE as TUTORIAL
from tests.docs.test_yaml_blocks import OF_OWN_ALGORITHMS
from tests.needs import why_no_namespaces

MARK = "-- the end of a command --"
REGISTRY = "testbed/algorithms/__init__.py"
PYTHON = [
    block
    for block in blocks("python")
    if block.page not in OF_THE_LIBRARY and block.page != TUTORIAL
]
MODULES = [block for block in PYTHON if (block.path or "").startswith("testbed/algorithms/")]
TESTS = [block for block in PYTHON if (block.path or "").startswith("tests/")]


@dataclass(frozen=True)
class Copy:
    """A copy of the package with the pages' modules in it."""

    folder: Path

    def do(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def told_by(self, commands: Iterable[list[str]]) -> list[str]:
        """Return what commands print, one after the other in one interpreter: it takes seconds."""
        code = "import sys, testbed.__main__\n"
        for command in commands:
            code += f"sys.argv = {command}\ntry:\n    testbed.__main__.main()\n"
            code += f"except SystemExit as end:\n    assert not end.code, end\nprint({MARK!r})\n"
        (self.folder / "commands.py").write_text(code, encoding="utf-8")
        done = self.do("commands")
        assert done.returncode == 0, done.stderr
        *told, rest = done.stdout.split(f"{MARK}\n")
        assert not rest
        return told


def named(block: Block) -> tuple[str, str]:
    """Return the name and the class of the algorithm that a module defines."""
    classes = [node for node in ast.parse(block.text).body if isinstance(node, ast.ClassDef)]
    (name,) = (
        ast.literal_eval(item.value)
        for one in classes
        for item in one.body
        if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "name" and item.value
    )
    (algorithm,) = (
        one.name
        for one in classes
        for item in one.body
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "options_type"
    )
    return str(name), algorithm


def registered(registry: str) -> str:
    """Return the registry with two lines for each module, in the form of the page's example."""
    (example,) = (
        one for one in blocks() if one.first.startswith("from testbed.algorithms.plain_asgd")
    )
    imported, _, entry = example.text.splitlines()
    assert (imported, entry.strip()) == (
        "from testbed.algorithms.plain_asgd import PlainAsgd",
        '"plain-asgd": PlainAsgd,',
    )
    found = re.search(r"^ALGORITHMS: .* = \{\n", registry, re.MULTILINE)
    assert found, f"{REGISTRY} has another form: the page and this test say where a line goes"
    head, entries = "", ""
    for block in MODULES:
        name, algorithm = named(block)
        module = str(block.path).removesuffix(".py").replace("/", ".")
        line = imported.replace("testbed.algorithms.plain_asgd", module)
        head += f"{line.replace('PlainAsgd', algorithm)}\n"
        entries += f"{entry.replace('plain-asgd', name).replace('PlainAsgd', algorithm)}\n"
    return head + registry[: found.end()] + entries + registry[found.end() :]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    folder = tmp_path_factory.mktemp("copy")
    for package in ("testbed", "traffic", "fastgrad"):  # with what Python has compiled of them
        being_written = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(REPOSITORY / package, folder / package, ignore=being_written)
    for block in [*MODULES, *TESTS, *blocks("yaml")]:
        if block.path:
            path = folder / block.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    registry = folder / REGISTRY
    registry.write_text(registered(registry.read_text(encoding="utf-8")), encoding="utf-8")
    return Copy(folder)


def test_every_python_block_has_its_place() -> None:
    assert len(MODULES) == 5
    assert len(TESTS) == 1
    assert [str(block) for block in PYTHON if block not in MODULES + TESTS] == []


@pytest.mark.real
@pytest.mark.exercises("namespaces", needed=False)
def test_the_example_algorithms_end_with_the_same_bits_everywhere(copy: Copy) -> None:
    digests, diagnostics = {}, {}
    why = why_no_namespaces()
    hows = ("simulate",) if why else ("run", "simulate")
    told = copy.told_by(
        ["testbed", how, OF_OWN_ALGORITHMS, "--out", how, "--no-report", "--json"] for how in hows
    )
    if why:
        pytest.skip(f"simulated only, no namespaces: {why}")
    for how, text in zip(hows, told, strict=True):
        summaries = json.loads(text)["runs"]
        digests[how] = {one["algorithm"]: one["parameters_sha256"] for one in summaries}
        assert all(one["updates"] == 60 for one in summaries)
        diagnostics[how] = {
            path.parent.name: pq.read_table(path).to_pydict()
            for path in (copy.folder / how).glob("*/*/*/diagnostics.parquet")
        }
    assert len(digests["simulate"]) == len(MODULES)
    assert digests["run"] == digests["simulate"]
    assert {name: list(one) for name, one in diagnostics["simulate"].items()} == {
        "plain-asgd": ["iteration", "largest_step"],
        "halving-sgd-20": ["iteration", "k", "late"],
    }
    assert diagnostics["run"] == diagnostics["simulate"]


@pytest.mark.parametrize("block", TESTS, ids=str)
def test_the_sample_test_passes(copy: Copy, block: Block) -> None:
    done = copy.do("pytest", "-q", "-p", "no:cacheprovider", str(block.path))
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_example_modules_are_typed(copy: Copy) -> None:
    files = [str(block.path) for block in MODULES]
    # With what `make lint` has kept: otherwise mypy reads the whole package anew.
    if (kept := REPOSITORY / ".mypy_cache").is_dir():
        shutil.copytree(kept, copy.folder / "types")
    settings = ("--config-file", str(REPOSITORY / "pyproject.toml"), "--cache-dir", "types")
    done = copy.do("mypy", *settings, *files)
    assert done.returncode == 0, done.stdout + done.stderr

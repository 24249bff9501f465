"""The mutants of the fuzzed readers' files: the same each time, and few of them in every test run."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from bench.fuzz.readers import mutants
from tests.end_to_end.conftest import CommandLine

TARGETS = sorted(
    path.stem for path in (Path(__file__).parents[2] / "bench/fuzz/targets").glob("[!_]*.py")
)
BROKEN = """
import bench.fuzz.readers as readers
class Broken:
    TOKENS = (b"x",)
    def corpus(self): return [b"abc"]
    def check(self, data):
        if data.startswith(b"x"): raise KeyError("x")
        if data.endswith(b"x"): bytearray(2**33)
        return True
raise SystemExit(readers.fuzz(Broken(), 1, range(200), readers.Path("kept")))
"""


def constants() -> dict[tuple[str, str], object]:
    """Return the numbers and texts that our modules hold as constants, by module and name.

    A target that changed one would change what the tests after it see, in the same process.
    """
    return {
        (module, name): value
        for module, content in list(sys.modules.items())
        if module.partition(".")[0] in ("testbed", "traffic", "fastgrad")
        for name, value in vars(content).items()
        if name.isupper() and isinstance(value, int | float | str | bytes)
    }


@pytest.mark.parametrize("name", TARGETS)
def test_every_file_of_the_corpus_is_read(name: str) -> None:
    target = importlib.import_module(f"bench.fuzz.targets.{name}")
    before = constants()
    assert all(target.check(data) for data in target.corpus())
    after = constants()
    assert {key: after[key] for key in before} == before


def test_an_input_is_the_same_each_time() -> None:
    corpus, tokens = [b"abcdefgh" * 9, b"12345678"], [b"token"]
    made = dict(mutants(corpus, tokens, 3, range(300)))
    assert dict(mutants(corpus, tokens, 3, range(200, 210))).items() <= made.items()
    assert len(set(made.values())) > 250
    assert made != dict(mutants(corpus, tokens, 4, range(300)))


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_reads_or_refuses_mutants(name: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ended = CommandLine(tmp_path, "bench.fuzz").do(name, "--inputs", "300", "--keep", kept)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("300 inputs, ") and "refused, 0 findings" in ended.stdout


def test_another_exception_and_too_much_memory_are_findings(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKEN]
    root = str(Path(__file__).parents[2])
    ended = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": root}, capture_output=True, text=True, check=False
    )
    kept = [path.read_bytes() for path in (tmp_path / "kept").iterdir()]
    assert ended.returncode == len(kept) and f"{len(kept)} findings" in ended.stdout, ended.stderr
    assert any(data.startswith(b"x") for data in kept) and any(data.endswith(b"x") for data in kept)
    assert "KeyError" in ended.stdout and "MemoryError" in ended.stdout

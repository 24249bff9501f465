"""A small sweep as a file, and the command line to run it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import CommandLine

SWEEP = """
name: small
dataset: digits
model: mlp
engine: simulation
training: {updates: 40}
algorithms: [asgd, {name: adacomp, ratio: 0.01}]
devices: {workers: 2}
waiting: {distribution: constant, mean: 10ms}
evaluation: {every: 20}
sweep:
  seed: [1, 2]
  algorithms.adacomp.ratio: [0.1, 0.01]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SWEEP, encoding="utf-8")
    return path


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()

"""Runs of an experiment of three seconds' work at most, made once by the library."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import testbed

SMALL = """
name: small
dataset: digits
model: mlp
training: {updates: 60}
algorithms: [asgd, {name: adacomp, ratio: 0.01}]
devices: {workers: 3}
waiting: {distribution: constant, mean: 10ms}
evaluation: {every: 20}
"""


@dataclass(frozen=True)
class Simulated:
    """Runs, and the folder of all runs that they are in."""

    runs: testbed.Runs
    root: Path


@pytest.fixture(scope="package")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    root = tmp_path_factory.mktemp("library")
    experiment = testbed.Experiment.parse(SMALL)
    return Simulated(testbed.simulate(experiment, out=root, progress=False), root)

"""Runs whose loss is no classification: a language model, and a loss and a measure of one's own."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import testbed
from tests.docs.blocks import REPOSITORY
from tests.end_to_end.agreement import pairs

BASE: dict[str, Any] = {
    "name": "losses",
    "clock": "virtual",
    "algorithms": ["asgd"],
    "devices": {"workers": 3},
    "compute": {"distribution": "exponential", "mean": "100ms"},
}
LANGUAGE = BASE | {
    "dataset": {"name": "text", "path": "text.txt", "tokens": "characters", "context": 16},
    "model": {"name": "transformer", "layers": 1, "width": 16, "heads": 2},
    "training": {"updates": 60, "learning_rate": 0.5, "batch_size": 8, "clip": 1},
    "evaluation": {"every": 30, "images": 100},
}


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_a_language_model_is_the_same_in_namespaces_and_in_the_simulator(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text((REPOSITORY / "LICENSE").read_text(encoding="utf-8"))
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(LANGUAGE))
    (pair,) = pairs(path, tmp_path)
    assert pair.emulated["ended"] == "completed"
    assert pair.differences() == []
    measure = pair.emulated["measure"]
    assert measure == pair.simulated["measure"]
    assert measure["name"] == "perplexity"
    assert measure["final"] < 30  # guessing among all characters has as many as there are, 60


OWN = """
import numpy as np
import torch
from torch import nn


def line(slope: float = 2.0):
    x = np.linspace(-1, 1, 200, dtype=np.float32)[:, None]
    return x, slope * x + 1, x[::2], slope * x[::2] + 1


def linear(inputs):
    return nn.Linear(inputs.image[0], inputs.classes)


def squares(outputs, targets):
    return (outputs - targets).square().mean()


def within(outputs, targets, distance: float = 0.1):
    return 100 * ((outputs - targets).abs() < distance).float().mean()
"""


def test_a_regression_with_a_measure_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    content = BASE | {
        "plugins": ["own.py"],
        "dataset": {"name": "own:line", "slope": 3.0},
        "model": "own:linear",
        "loss": "own:squares",
        "training": {"updates": 300, "learning_rate": 0.2},
        "evaluation": {
            "every": 100,
            "measure": {"name": "own:within", "distance": 0.2, "unit": "%", "better": "higher"},
        },
    }
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(content))
    (run,) = testbed.simulate(path, out=tmp_path / "runs")
    measure = run.summary.measure
    assert measure is not None
    assert (measure.name, measure.unit, measure.best, measure.final) == ("within", "%", 100, 100)
    rows = run.evaluations().to_pydict()
    assert rows["within"][0] < 50
    assert all(map(math.isnan, rows["accuracy"]))
    summary = json.loads((run.directory / "summary.json").read_text())
    assert summary["best_accuracy"] is None
    assert (run.directory / "curve.csv").read_text().splitlines()[0].endswith(",wire_bytes,within")
    theta = np.load(run.directory / "parameters.npy")
    assert theta == pytest.approx([3, 1], abs=0.05)

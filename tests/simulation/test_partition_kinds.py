"""A small simulation of each kind of partition that gives devices labels of their own."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.execution import carry_out
from testbed.experiment.spec import Spec
from testbed.learning.data import datasets
from testbed.planning.images import share_out
from testbed.planning.plan import plan
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.resuming import RunJob
from testbed.runs.watching import Unwatched
from testbed.training import computation

WORKERS = 5


@pytest.mark.parametrize(
    "partition",
    [
        {"kind": "pathological", "classes_per_worker": 3},
        {"kind": "inner-dirichlet", "alpha": 0.1},
        {"kind": "linear"},
        {"kind": "exponential", "ratio": 1.5},
        {"kind": "natural", "file": "owners.txt"},
        {"kind": "file", "file": "parts.txt"},
    ],
    ids=lambda partition: partition["kind"],
)
def test_a_run_learns_from_its_partition_and_records_it(
    partition: dict[str, Any], tmp_path: Path
) -> None:
    labels = datasets.training_labels("digits", None, 1)
    if "file" in partition:
        numbers = np.arange(len(labels))
        texts = {
            "owners.txt": "".join(f"writer-{i % 8}\n" for i in numbers),
            "parts.txt": "".join(f"{' '.join(map(str, numbers[i::7]))}\n" for i in range(WORKERS)),
        }
        path = tmp_path / partition["file"]
        path.write_text(texts[path.name])
        partition = {**partition, "file": str(path)}
    spec = {
        "name": "kinds",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 10},
        "algorithms": ["asgd"],
        "engine": "simulation",
        "clock": "virtual",
        "compute": {"distribution": "constant", "mean": "10ms"},
        "devices": {"workers": WORKERS},
        "partition": partition,
    }
    (one,) = plan(Spec.model_validate(spec, strict=True))
    summary = carry_out(RunJob(one), tmp_path / "run", Unwatched(), time.monotonic())
    assert summary["ended"] == "completed"
    counts = RecordedRun.load(tmp_path / "run").image_counts
    parts = computation.parts(one.settings, labels)
    expected = [np.bincount(labels[part], minlength=10).tolist() for part in parts]
    assert counts.tolist() == expected
    assert share_out(one).images.tolist() == counts.sum(axis=1).tolist()

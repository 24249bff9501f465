"""Exact values change no result of a simulation, and are those at the evaluated versions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.learning.exact import LOSS, NORM, VARIANCE
from testbed.results.reading.recorded_run import RecordedRun
from tests.metrics.running import planned, simulated


def run(folder: Path, **simulation: Any) -> RecordedRun:
    one = planned(
        engine="simulation",
        clock="virtual",
        partition="same",
        training={"updates": 12, "batch_size": 100},
        algorithms=["dbw"],
        compute={"distribution": "exponential", "mean": "1s"},
        evaluation={"every": 4},
        simulation=simulation,
    )
    return RecordedRun.load(simulated(one, folder)[0])


def test_exact_values_change_no_bit_and_have_a_row_for_each_evaluation(tmp_path: Path) -> None:
    without = run(tmp_path / "without")
    found = run(tmp_path / "with", exact={"images": 1000})
    assert found.summary.parameters_sha256 == without.summary.parameters_sha256
    assert found.summary.ingress == without.summary.ingress
    assert without.evaluations.exact == {}
    exact = found.evaluations.exact
    assert list(exact) == [LOSS, NORM, VARIANCE]
    assert found.evaluations.iteration.tolist() == [0, 4, 8, 12]
    # The estimates of the updates that lead from the evaluated versions, each from at least 100 images.
    at = found.evaluations.iteration[:-1]
    assert found.diagnostics["loss"][at] == pytest.approx(exact[LOSS][:-1], rel=0.25)
    with (found.directory / "curve.csv").open() as curve:
        assert next(curve).rstrip().endswith(f"wire_bytes,{LOSS},{NORM},{VARIANCE}")


def test_the_loss_alone_has_one_column(tmp_path: Path) -> None:
    found = run(tmp_path, exact={"gradient": False})
    assert list(found.evaluations.exact) == [LOSS]
    assert np.isfinite(found.evaluations.exact[LOSS]).all()

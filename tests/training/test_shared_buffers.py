"""Shared buffers move by their own changes, whatever the schedule of the learning rate."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from testbed import execution
from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.learning_rate import RateSchedule
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.experiment.load import load
from testbed.training.parameter_service import Pushed, apply_update
from testbed.training.shared_buffers import SharedBuffers
from testbed.updates import DenseUpdate
from tests.simulation.test_beyond import watch

ALPHA = 0.5
RISING = RateSchedule(ALPHA, 8, 0.01, [20], 0.1, None, 100)
CHANGE = 0.25
"""β − β′ of the one buffer, which follows two parameters."""


def test_a_buffer_moves_by_its_change_at_whatever_rate_the_step_is_taken() -> None:
    half = StalenessDivided(np.ones(3, np.float32), RISING)
    half.fit = SharedBuffers(2, RISING, ALPHA).fit
    pushed = DenseUpdate(np.array([1, 2, CHANGE / ALPHA], np.float32))
    assert "fit" not in half.state()
    for version in (0, 3, 8, 20):
        half.parameters[:], half.version = 1, version
        half.pull(0)
        apply_update(half, 0, Pushed(version, pushed, 0, 0.0), 0.0)
        expected = 1 - np.array([RISING(version), 2 * RISING(version), CHANGE])
        np.testing.assert_allclose(half.parameters, expected, rtol=1e-6)
    assert pushed.values.tolist() == [1, 2, CHANGE / ALPHA]


def test_a_synchronous_step_averages_the_buffers_of_its_workers() -> None:
    half = SynchronousServer(np.ones(2, np.float32), RISING, 2, "pull")
    half.fit = SharedBuffers(1, RISING, ALPHA).fit
    for version in range(4):
        half.parameters[:] = 1
        for worker, change in enumerate((0.2, 0.4)):
            half.pull(worker)
            update = DenseUpdate(np.array([1, change / ALPHA], np.float32))
            apply_update(half, worker, Pushed(version, update, 0, 0.0), 0.0)
        np.testing.assert_allclose(half.parameters, [1 - RISING(version), 0.7], rtol=1e-6)


@pytest.mark.parametrize("servers", [1, 2])
def test_no_running_variance_is_negative_after_a_warm_up(tmp_path: Path, servers: int) -> None:
    path = tmp_path / "warm.yaml"
    content = {
        "name": "warm",
        "dataset": "digits",
        "model": {"name": "cnn-small", "buffers": "shared"},
        "training": {"updates": 40, "schedule": {"warm_up": 20, "warm_up_from": 0.01}},
        "engine": "simulation",
        "clock": "virtual",
        "algorithms": ["asgd", {"name": "asgd", "send_queue": 1, "label": "queue"}, "ga"],
        "devices": {"workers": 12, "servers": servers},
        "compute": {"distribution": "constant", "mean": "20ms"},
        "evaluation": {"every": 10, "images": 50},
    }
    path.write_text(yaml.safe_dump(content))
    done = execution.execute(load(path), tmp_path / "runs", watch, report=False)
    assert [one["ended"] for one in done.summaries] == ["completed"] * 3

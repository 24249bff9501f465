"""What is learnt, and how, is the same in namespaces and in the simulator, to the bit."""

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_agree import agree

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

SPEC: dict[str, Any] = {
    "name": "learning",
    "dataset": "digits",
    "model": {"name": "cnn-small", "buffers": "shared"},
    "training": {"updates": 40},
    "clock": "virtual",
    "algorithms": ["asgd", {"name": "sync-sgd", "wait_for": 3, "protocol": "push-and-interrupt"}],
    "devices": {"workers": 5},
    "network": {"uplink": "50mbit"},
    "compute": {"distribution": "exponential", "mean": "50ms"},
    "evaluation": {"every": 20, "images": 100},
}


def test_shared_statistics_and_dropout_agree_with_several_servers(tmp_path: Path) -> None:
    digests = agree(tmp_path, SPEC | {"devices": {"workers": 5, "servers": 2}})
    assert len(set(digests)) == 2


def test_statistics_of_mini_batches_agree_among_peers(tmp_path: Path) -> None:
    agree(tmp_path, SPEC | {"model": "cnn-small", "algorithms": ["all-to-all"]})

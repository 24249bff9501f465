"""What is learnt, and how, is the same in namespaces and in the simulator, to the bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.end_to_end.agreement import summaries
from tests.end_to_end.test_agree import agree

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

SPEC: dict[str, Any] = {
    "name": "learning",
    "dataset": "digits",
    "model": {"name": "cnn-small", "buffers": "shared"},
    "training": {"updates": 16},
    "clock": "virtual",
    "algorithms": ["asgd", {"name": "sync-sgd", "wait_for": 3, "protocol": "push-and-interrupt"}],
    "devices": {"workers": 5},
    "network": {"uplink": "50mbit"},
    "compute": {"distribution": "exponential", "mean": "50ms"},
    "evaluation": {"every": 8, "images": 100},
}


def test_shared_statistics_and_dropout_agree_with_several_servers(tmp_path: Path) -> None:
    rules = [{"name": "ga", "gap": "layer"}, {"name": "adam-sa", "learning_rate": 0.01}]
    spec = SPEC | {"algorithms": [*SPEC["algorithms"], *rules]}
    digests = agree(tmp_path, spec | {"devices": {"workers": 5, "servers": 2}})
    assert len(set(digests)) == 4


def test_augmentation_schedule_decay_clipping_and_equal_data_agree(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 60), ("test", 30)):
        arrays[f"{part}_labels"] = np.arange(count) % 3
        arrays[f"{part}_images"] = generator.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", **arrays)
    training = {
        "updates": 20,
        "weight_decay": 0.001,
        "clip": 0.5,
        "augmentation": {"crop": 2, "flip": True},
        "schedule": {"unit": "epochs", "warm_up": 1, "milestones": [2], "factor": 0.2},
    }
    spec = SPEC | {"dataset": {"name": "own.npz", "scaling": "per-channel"}, "partition": "same"}
    (digest,) = agree(tmp_path, spec | {"training": training, "algorithms": ["asgd"]})
    for key in ("weight_decay", "clip", "augmentation", "schedule"):  # each has an effect
        path = tmp_path / "without.yaml"
        without = {name: value for name, value in training.items() if name != key}
        path.write_text(yaml.safe_dump(spec | {"training": without, "algorithms": ["asgd"]}))
        (other,) = summaries("simulate", path, tmp_path / key)
        assert other["parameters_sha256"] != digest


def test_statistics_of_mini_batches_agree_among_peers(tmp_path: Path) -> None:
    agree(tmp_path, SPEC | {"model": "cnn-small", "algorithms": ["all-to-all"]})


def test_a_stream_is_dealt_in_the_order_of_the_clock(tmp_path: Path) -> None:
    spec = SPEC | {
        "model": "mlp",
        "partition": "stream",
        "network": {"uplink": "50mbit", "downlink": "100mbit"},
        # Of fewer bytes, those of a push that the kill breaks off are more than 0.5 %.
        "training": {"updates": 40},
        "faults": [
            {"who": {"number": 1}, "when": {"time": "150ms"}, "how": "kill", "lasting": "200ms"}
        ],
    }
    digests = agree(tmp_path, spec, "kill")
    same = tmp_path / "same.yaml"
    same.write_text(yaml.safe_dump(spec | {"partition": "same"}))
    others = [one["parameters_sha256"] for one in summaries("simulate", same, tmp_path / "same")]
    assert not set(digests) & set(others)

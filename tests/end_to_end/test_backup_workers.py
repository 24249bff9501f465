"""Rules that choose k: emulation and simulation agree to the bit, also under faults."""

from pathlib import Path

import pytest
import yaml

from tests.end_to_end.agreement import pairs

SPEC = Path(__file__).parents[2] / "experiments" / "agree-backup-workers.yaml"
pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]


def test_struck_workers_are_not_waited_for_and_the_engines_agree(tmp_path: Path) -> None:
    """Slowed, frozen, killed and returning workers, two of them gone for good, by each protocol."""
    spec = yaml.safe_load(SPEC.read_text(encoding="utf-8"))
    spec |= {
        "training": {"updates": 18, "learning_rate": 0.3, "batch_size": 20},
        "algorithms": [
            {"name": "dbw", "protocol": "push-and-wait"},
            {"name": "dbw", "protocol": "push-and-interrupt"},
            {"name": "dbw", "protocol": "pull", "gain": "k", "ratio": 0.1},
        ],
        "devices": {"workers": 8, "suspect_after": "3s"},
        "faults": [
            {"who": {"devices": ["worker-1"]}, "when": {"time": "2s"}, "how": "kill"},
            {"who": {"devices": ["worker-2"]}, "when": {"time": "3s"}, "how": "freeze"},
            {
                "who": {"devices": ["worker-3", "worker-4"]},
                "when": {"time": "4s"},
                "how": {"kind": "slow", "factor": 5},
                "lasting": "5s",
            },
            {
                "who": {"devices": ["worker-5"]},
                "when": {"time": "5s"},
                "how": "kill",
                "lasting": "2s",
            },
        ],
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    for pair in pairs(path, tmp_path):
        assert pair.differences() == [], pair.emulated["algorithm"]
        assert pair.emulated["updates"] == spec["training"]["updates"]

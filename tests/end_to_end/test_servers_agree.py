"""Several servers under the virtual clock: emulation and simulation agree, to the bit."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyarrow import parquet

from tests.end_to_end.agreement import differences_of_restored, pairs

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

SERVERS = Path(__file__).parents[2] / "experiments" / "agree-servers.yaml"
FEW: dict[str, Any] = {
    "training": {"updates": 16, "learning_rate": 0.02},
    "evaluation": {"every": 8, "images": 50},
}
"""A synchronous update costs eight pushes and pulls at each of the servers: at three, 16 are 768
messages."""
KINDS = ("kill", "freeze", "stop-network", {"kind": "slow", "factor": 3, "uplink": "5mbit"})
STRUCK = {
    "easgd": {"name": "easgd", "exchange_every": 2},
    "downpour": {"name": "downpour", "push_every": 2, "fetch_every": 3, "staleness_bound": 4},
    "synchronous": {"name": "sync-sgd", "wait_for": 6, "protocol": "push-and-wait"},
}


def assert_agree(tmp_path: Path, **changes: Any) -> None:
    spec = yaml.safe_load(SERVERS.read_text(encoding="utf-8")) | changes
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    for pair in pairs(path, tmp_path):
        assert pair.differences() == [], pair.emulated["algorithm"]
        assert pair.emulated["updates"] == spec["training"]["updates"]
        assert abs(pair.wire_ratio - 1) < 0.005


def test_clusters_with_three_servers_agree(tmp_path: Path) -> None:
    """Energy, too: it is recorded when all servers have the version that is evaluated.

    Synchronous workers of three servers are struck below.
    """
    assert_agree(
        tmp_path,
        # Of fewer bytes, what TCP sends for nothing on a busy host is more than 0.5 %.
        training={"updates": 75, "learning_rate": 0.02},
        evaluation={"every": 25, "images": 50},
        algorithms=[
            {"name": "adacomp", "label": "adacomp", "ratio": 0.01, "pulls": "changed"},
            "asgd",
        ],
        devices={"workers": 8, "servers": 3, "power": {"idle": "2W", "busy": "5W"}},
    )
    recorded = [
        {
            path.parent.name: parquet.read_table(path)
            for path in (tmp_path / way).rglob("energy.parquet")
        }
        for way in ("simulated", "namespaces")
    ]
    assert recorded[0].keys() == recorded[1].keys()
    assert recorded[0].keys() == {"adacomp", "asgd"}
    for name, simulated in recorded[0].items():
        assert simulated.num_rows == 4 and simulated.equals(recorded[1][name]), name


@pytest.mark.parametrize("algorithm", STRUCK)
def test_struck_workers_of_three_servers_agree(tmp_path: Path, algorithm: str) -> None:
    assert_agree(
        tmp_path,
        training={"updates": 12 if algorithm == "synchronous" else 40, "learning_rate": 0.02},
        evaluation=FEW["evaluation"],
        algorithms=[STRUCK[algorithm]],
        devices={"workers": 8, "servers": 3, "suspect_after": "2s"},
        faults=[{"when": {"mean_time": "2s"}, "how": how, "lasting": "300ms"} for how in KINDS],
    )
    (faults,) = (tmp_path / "simulated").rglob("faults.jsonl")
    struck = {json.loads(line)["fault"] for line in faults.read_text().splitlines()}
    assert struck == {"kill", "freeze", "stop-network", "slow"}


def test_what_is_made_anew_for_a_worker_at_a_version_agrees(tmp_path: Path) -> None:
    """A worker is sent a version again where a server took no push of it in, as it had suspected it.

    What a rule makes for the worker has changed meanwhile. The worker computes at what came last, and
    again at what came before where a server is killed.
    """
    spec = {
        "name": "again",
        "dataset": "digits",
        "model": "mlp",
        "clock": "virtual",
        "training": {"updates": 48, "learning_rate": 0.005, "batch_size": 8},
        "algorithms": ["easgd", "dana-ga"],
        "devices": {"workers": 3, "servers": 2, "suspect_after": "300ms"},
        "network": {"uplink": "20mbit"},
        "compute": {"distribution": "exponential", "mean": "20ms"},
        "waiting": {"distribution": "exponential", "mean": "250ms"},
        "evaluation": {"every": 24, "images": 50},
        "checkpoints": {"every": 4},
        "faults": [
            {"who": {"devices": [server]}, "when": {"iteration": number}, "how": "kill"}
            | {"lasting": "100ms"}
            for server, number in (("server-0", 42), ("server-1", 44))
        ],
    }
    path = tmp_path / "again.yaml"
    path.write_text(yaml.safe_dump(spec))
    for pair in pairs(path, tmp_path):
        assert differences_of_restored(pair) == [], pair.emulated["algorithm"]
        assert pair.simulated["suspected"] > 20


def test_interrupted_workers_and_lossy_encodings_agree(tmp_path: Path) -> None:
    assert_agree(
        tmp_path,
        **FEW,
        algorithms=[
            {"name": "sync-sgd", "wait_for": 6, "protocol": "push-and-interrupt"},
            {"name": "comp-asgd", "ratio": 0.05, "error_feedback": True},
        ],
        encoding="compact-8-zstd",
        devices={"workers": 8, "servers": 2, "allocation": "layers"},
    )

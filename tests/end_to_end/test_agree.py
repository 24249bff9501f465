"""Emulation and simulation of one experiment agree: the same parameters to the bit, the same bytes.

The emulation has real namespaces and sockets; the simulation is one process. There is one spec for
each shape of algorithm.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from bench.agree import SPEC
from testbed.runs.ledgers.ledgers import Ledgers
from tests.end_to_end.agreement import pairs, summaries
from tests.end_to_end.conftest import CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]


def agree(tmp_path: Path, spec: dict[str, Any], *struck: str) -> list[str]:
    """Assert that emulation and simulation agree; return the digests of the parameters.

    Args:
        struck: kinds of faults that each run must have had.
    """
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    found = pairs(path, tmp_path)
    assert len(found) == len(spec["algorithms"])
    for pair in found:
        assert pair.emulated["ended"] == "completed"
        assert pair.differences() == [], pair.emulated["algorithm"]
        assert pair.emulated.get("faults", {}).keys() >= set(struck), pair.emulated["algorithm"]
    for capture in tmp_path.glob("namespaces/*/*/*/traffic"):
        splits_as_counted(capture)
    return [pair.emulated["parameters_sha256"] for pair in found]


def splits_as_counted(capture: Path) -> None:
    """Assert that the captured streams have as much payload as the servers have counted, by device."""
    table = pq.read_table(capture / "accounting.parquet").to_pylist()
    counted, split = Counter[str](), Counter[str]()
    for one in (one for ledgers in Ledgers.load_all(capture) for one in ledgers.over_links):
        counted[str(one.device)] += one.payload_bytes
    for row in table:
        if row["direction"] == "ingress":
            split[row["device"]] += row["payload_bytes"]
    assert split == counted, capture


def simulated(tmp_path: Path, spec: dict[str, Any]) -> str:
    """Return the digest of the parameters of a simulated run, whose emulation others compare."""
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    (summary,) = summaries("simulate", path, tmp_path / "simulated")
    return str(summary["parameters_sha256"])


@pytest.fixture
def spec() -> dict[str, Any]:
    """The experiment of ``make agree``, smaller: five workers, 16 updates."""
    content: dict[str, Any] = yaml.safe_load(SPEC.read_text())
    content["training"]["updates"] = 16
    content["devices"]["workers"] = 5
    content["evaluation"]["every"] = 8
    for algorithm in content["algorithms"]:
        if "wait_for" in algorithm:
            algorithm["wait_for"] = 4
    return content


def test_each_shape_agrees_with_encodings_pulls_and_error_feedback(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    adacomp, pull, wait, interrupt, peers = spec["algorithms"]
    spec["algorithms"] = [
        adacomp | {"encoding": "compact-8-zstd"},
        {"name": "comp-asgd", "encoding": "compact-16", "error_feedback": True, "momentum": 0.5},
        pull,
        wait | {"pulls": "changed"},
        interrupt,
        peers | {"encoding": "compact-8"},
    ]
    spec["evaluation"]["peer"] = 3
    digests = agree(tmp_path, spec)
    assert len(set(digests)) == len(digests)  # so that equal digests mean something
    line, runs = CommandLine(tmp_path), ("--runs", tmp_path / "namespaces")
    said = line.do("traffic", "agree", *runs).stdout
    assert "to the server " in said and "from peer-" in said  # which there is observed
    messages = json.loads(line.do("traffic", "agree", *runs, "--frames", "--json").stdout)
    assert len({one["run"] for one in messages}) == len(digests)


def test_device_classes_and_profiles_with_different_times_links_and_labels_agree(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    """Delay and jitter differ by direction; parameters take no time to reach some classes."""
    spec["algorithms"] = [spec["algorithms"][i] for i in (0, 3, 4)]
    spec["network"] = {"profile": "4g"}
    spec["devices"]["classes"] = [
        {"name": "fast", "number": 1, "delay": 0, "jitter": 0},
        {"name": "phones", "number": 1, "hardware": "phone", "waiting": {"mean": "200ms"}},
        {"name": "homes", "number": 2, "profile": "starlink", "loss": 0, "uplink": "5mbit"}
        | {"compute": {"mean": "200ms"}},
        {"name": "near", "number": 1, "profile": "wifi", "uplink": "unlimited"}
        | {"downlink": "unlimited", "delay": {"up": "1ms"}, "jitter": {"up": "1ms"}},
    ]
    spec["partition"] = {"kind": "dirichlet", "alpha": 0.5}
    agree(tmp_path, spec)


def test_runs_with_unshaped_links_and_equal_times_agree(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    """Events happen at the same moments, so that only the rule for ties decides their order."""
    spec["algorithms"] = [spec["algorithms"][i] for i in (0, 3, 4)]
    del spec["network"]
    spec["compute"] = {"distribution": "constant", "mean": "50ms"}
    spec["waiting"] = {"distribution": "constant", "mean": 0}
    agree(tmp_path, spec)


def test_runs_with_faults_agree(tmp_path: Path, spec: dict[str, Any]) -> None:
    """The emulation really freezes, kills, restarts and cuts off; the simulator only computes it."""
    rule = {"name": "dana-ga", "learning_rate": 0.02}
    sparse, interrupt = spec["algorithms"][0], spec["algorithms"][3]
    spec["devices"]["suspect_after"] = "3s"
    spec["devices"]["power"] = {"idle": "2W", "busy": "5W", "sent": "3.5uJ"}
    spec["faults"] = [
        {"when": {"probability": 0.05}, "how": "freeze", "lasting": "200ms"},
        {"who": {"number": 1}, "when": {"iteration": 10}, "how": "freeze"},
        {"who": {"number": 2}, "when": {"mean_time": "250ms"}, "how": "kill", "lasting": "300ms"},
        {
            "who": {"share": "30%"},
            "when": {"time": "200ms"},
            "how": "partition",
            "lasting": "200ms",
        },
        {"when": {"mean_time": "1s"}, "how": {"kind": "slow", "factor": 3}, "lasting": "400ms"},
    ]
    kinds = ("freeze", "kill", "partition", "slow")
    asynchronous = {"algorithms": [sparse, rule], "training": {"updates": 30}}
    agree(tmp_path / "asynchronous", spec | asynchronous, *kinds)
    agree(tmp_path / "interrupted", spec | {"algorithms": [interrupt]}, *kinds)


def test_workers_of_one_server_that_train_on_their_own_copies_agree(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    """A worker that does not ask after each push computes more than once at what it was sent."""
    # Of fewer bytes, those that TCP sends for nothing when a worker is killed are more than 0.5 %.
    spec["training"]["updates"] = 40
    spec["devices"]["workers"] = 8
    spec["algorithms"] = [
        {"name": "downpour", "push_every": 2, "fetch_every": 3},
        {"name": "downpour", "fetch_every": 2, "staleness_bound": 3},
        {"name": "easgd", "exchange_every": 2},
    ]
    spec["faults"] = [
        {"when": {"mean_time": "3s"}, "how": "kill", "lasting": "300ms"},
        {"when": {"probability": 0.05}, "how": "freeze", "lasting": "200ms"},
    ]
    agree(tmp_path, spec, "freeze", "kill")


@pytest.mark.parametrize("name", ["agree", "agree-co-located", "agree-hierarchical"])
def test_servers_whose_messages_take_time_agree(tmp_path: Path, name: str) -> None:
    """Messages wait for a server when its workers are frozen, cut off and killed."""
    spec: dict[str, Any] = yaml.safe_load(SPEC.with_stem(name).read_text())
    spec["training"]["updates"] = 30 if name == "agree" else 20
    struck: tuple[str, ...] = ()
    del spec["algorithms"][1:]
    alone = simulated(tmp_path / "alone", spec)
    spec["costs"] = {"message": "4ms", "byte": "10ns", "apply": "20ns"}
    if name == "agree":
        spec["faults"] = [
            {"when": {"probability": 0.05}, "how": "freeze", "lasting": "200ms"},
            {
                "who": {"number": 2},
                "when": {"mean_time": "300ms"},
                "how": "kill",
                "lasting": "300ms",
            },
            {
                "who": {"share": "30%"},
                "when": {"time": "200ms"},
                "how": "partition",
                "lasting": "200ms",
            },
        ]
        struck = ("freeze", "kill", "partition")
    assert agree(tmp_path / "costly", spec, *struck) != [alone]


@pytest.mark.parametrize("name", ["clusters", "graph"])
def test_workers_that_share_links_agree(tmp_path: Path, name: str) -> None:
    """The first algorithm's messages share them while faults strike, those of the others without."""
    spec: dict[str, Any] = yaml.safe_load(SPEC.with_stem(f"agree-{name}").read_text())
    spec["training"]["updates"] = 24
    struck, *others = spec["algorithms"]
    digests = agree(tmp_path, spec | {"algorithms": others})
    assert len(set(digests)) == len(digests)
    spec["algorithms"] = [struck]
    spec["faults"] = [
        {"when": {"probability": 0.05}, "how": "freeze", "lasting": "200ms"},
        {"who": {"number": 2}, "when": {"mean_time": "500ms"}, "how": "kill", "lasting": "300ms"},
        {"who": {"share": "30%"}, "when": {"time": "200ms"}, "how": "partition"}
        | {"lasting": "200ms"},
        {"when": {"mean_time": "2s"}, "how": {"kind": "slow", "factor": 3, "uplink": "5mbit"}}
        | {"lasting": "400ms"},
    ]
    agree(tmp_path / "struck", spec, "freeze", "kill", "partition", "slow")


def test_peers_that_share_links_agree(tmp_path: Path) -> None:
    spec: dict[str, Any] = yaml.safe_load(SPEC.with_stem("agree-peers-in-clusters").read_text())
    spec["training"]["updates"] = 24
    spec["evaluation"]["every"] = 12
    spec["algorithms"] = [
        one for one in spec["algorithms"] if one.get("encoding") or "ako" in one["name"]
    ]
    agree(tmp_path, spec)

"""Aggregators: both clocks, three ledgers at the server and at each aggregator."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.command import execute_here
from bench.mixtures import try_out
from testbed.experiment.load import load
from testbed.results.reading.journals import read_updates
from testbed.results.reading.run_files import SERVER_KILLED
from testbed.runs.ledgers.ledgers import Ledgers
from tests.end_to_end.agreement import pairs
from tests.end_to_end.conftest import ENDLESS, CommandLine

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

HIERARCHICAL = Path(__file__).parents[2] / "experiments" / "agree-hierarchical.yaml"
NESTED = [
    {"name": "campus", "share": "60%", "uplink": "80mbit", "downlink": "150mbit", "delay": "5ms"},
    {"name": "village", "share": "40%", "inside": "region", "uplink": "20mbit", "delay": "30ms"},
    {"name": "region", "uplink": "40mbit", "downlink": "60mbit", "delay": "10ms"},
]
"""Two clusters, of which one is alone in a region."""
UNSHAPED = {"clusters": [{"name": "a", "share": "60%"}, {"name": "b", "share": "40%"}]}
UNSHAPED_REGION = [{"name": "b", "share": "40%", "inside": "region"}, {"name": "region"}]
SHAPED = {
    "uplink": "50mbit",
    "downlink": "80mbit",
    "server": {"uplink": "80mbit", "downlink": "60mbit"},
    "clusters": [
        {"name": "a", "share": "60%", "uplink": "40mbit", "downlink": "60mbit"},
        {"name": "b", "share": "40%", "uplink": "60mbit"},
    ],
}
ALL = {"name": "hierarchical"}
SPARSE = {
    "name": "hierarchical",
    "label": "sparse",
    "ratio": 0.05,
    "error_feedback": True,
    "encoding": "compact-8-zstd",
    "pulls": "changed",
    "server": "asynchronous",
    "wait_for": 2,
}


def written(tmp_path: Path, **changes: Any) -> Path:
    spec = yaml.safe_load(HIERARCHICAL.read_text(encoding="utf-8")) | changes
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return path


def test_emulation_and_simulation_agree(tmp_path: Path) -> None:
    path = written(tmp_path, training={"updates": 20}, devices={"workers": 5})
    found = pairs(path, tmp_path)
    assert len(found) == 3
    said = CommandLine(tmp_path).do("traffic", "--runs", tmp_path / "namespaces").stdout
    assert said.count("to the server and 2 aggregators ") == 3
    for pair in found:
        assert pair.differences() == [], pair.emulated["algorithm"]
        assert set(pair.emulated["aggregators"]) == {"aggregator-0", "aggregator-1"}
    assert len({pair.emulated["parameters_sha256"] for pair in found}) == 3


def test_devices_under_faults_in_a_region_agree(tmp_path: Path) -> None:
    def devices(*names: str) -> dict[str, list[str]]:
        return {"devices": list(names)}

    village = devices("worker-5", "worker-6", "worker-7")
    faults = [
        {"when": {"probability": 0.04}, "how": "freeze", "lasting": "200ms"},
        {"who": devices("worker-0"), "when": {"iteration": 8}, "how": "freeze", "lasting": "3s"},
        {"who": {"number": 2}, "when": {"mean_time": "1s"}, "how": "kill", "lasting": "300ms"},
        {"who": village, "when": {"time": "800ms"}, "how": "kill", "lasting": "700ms"},
        {"who": village, "when": {"time": "1600ms"}, "how": "partition", "lasting": "2500ms"},
        {"when": {"mean_time": "3s"}, "how": {"kind": "slow", "factor": 3}, "lasting": "400ms"},
    ]
    made = []
    for algorithm, updates in ((ALL, 12), (SPARSE, 24)):
        path = written(
            tmp_path,
            training={"updates": updates},
            algorithms=[algorithm],
            devices={"workers": 8, "suspect_after": "1s"},
            network={"uplink": "100mbit", "downlink": "200mbit", "clusters": NESTED},
            faults=faults,
        )
        made += pairs(path, tmp_path / f"{updates}")
    for pair in made:
        # What TCP sends again after an outage is measured, and not modelled.
        found = [text for text in pair.differences() if not text.startswith("wire bytes")]
        assert found == [], pair.emulated["algorithm"]
        assert pair.emulated["faults"] == pair.simulated["faults"]
        assert pair.emulated["faults"].keys() == {"freeze", "kill", "partition", "slow"}
        assert pair.emulated["updates"] in (12, 24)
        assert len(pair.emulated["aggregators"]) == 3


def test_aggregators_that_are_struck_agree(tmp_path: Path) -> None:
    def aggregators(*numbers: int) -> dict[str, Any]:
        return {"who": {"devices": [f"aggregator-{one}" for one in numbers]}}

    rates = {"kind": "slow", "uplink": "2mbit", "downlink": "10mbit"}
    faults = [
        aggregators(0) | {"when": {"time": "300ms"}, "how": "freeze", "lasting": "700ms"},
        aggregators(1, 2) | {"when": {"iteration": 4}, "how": "stop-network", "lasting": "500ms"},
        aggregators(2) | {"when": {"mean_time": "2s"}, "how": rates, "lasting": "600ms"},
        {"who": {"number": 2}, "when": {"mean_time": "1s"}, "how": "kill", "lasting": "300ms"},
    ]
    path = written(
        tmp_path,
        training={"updates": 20},
        algorithms=[SPARSE],
        devices={"workers": 8, "suspect_after": "1s"},
        network={"uplink": "100mbit", "downlink": "200mbit", "clusters": NESTED},
        faults=faults,
    )
    (pair,) = pairs(path, tmp_path)
    assert pair.differences() == []
    assert pair.emulated["faults"] == pair.simulated["faults"]
    assert pair.emulated["faults"].keys() >= {"freeze", "stop-network", "kill"}


def test_several_servers_of_which_one_is_killed_agree(tmp_path: Path) -> None:
    """In a region, a cluster whose devices are all away meanwhile rests at both servers."""

    def devices(*names: str) -> dict[str, list[str]]:
        return {"devices": list(names)}

    spec = {
        "name": "tree-of-servers",
        "dataset": "digits",
        "model": "mlp",
        "clock": "virtual",
        "training": {"updates": 24, "batch_size": 8},
        "algorithms": [SPARSE | {"error_feedback": False}],
        "devices": {"workers": 6, "servers": 2, "suspect_after": "1s"},
        "network": {"uplink": "100mbit", "downlink": "200mbit", "clusters": NESTED},
        "compute": {"distribution": "exponential", "mean": "50ms"},
        "waiting": {"distribution": "exponential", "mean": "50ms"},
        "evaluation": {"every": 12, "images": 50},
        "checkpoints": {"every": 5},
        "faults": [
            {
                "who": devices("worker-4", "worker-5"),
                "when": {"time": "300ms"},
                "how": "kill",
                "lasting": "400ms",
            },
            strike(devices("worker-0"), 6, "freeze"),
            strike(devices("worker-1"), 8, "stop-network"),
            strike(devices("server-1"), 11, "kill", "100ms"),
        ],
    }
    assert try_out(spec, tmp_path, emulate=True) == []


def assert_ledgers_agree(run: Path, summary: dict[str, Any]) -> None:
    """Assert that the ledgers agree at the server and at each aggregator, and are what they say."""
    assert summary["ended"] == "completed"
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]["differences"]
    assert all(one["reconciled"] is True for one in summary["traffic"]["servers"].values())
    found = {str(one.of): one for one in Ledgers.load_all(run / "traffic")}
    assert list(found) == ["server", "aggregator-0", "aggregator-1"]
    above = found.pop("server")
    assert {one.device for one in above.connections} == {"aggregator-0", "aggregator-1"}
    entered = {"server": summary["ingress_after_drain"], **summary["aggregators"]}
    for name, ledgers in (("server", above), *found.items()):
        own = entered[name]
        assert sum(one.message_bytes for one in ledgers.connections) == own["message_bytes"]
        assert sum(one.payload_bytes for one in ledgers.connections) == own["payload_bytes"]
        assert ledgers.counter is not None
        assert int(ledgers.counter["bytes"]) == own["wire_bytes"] > own["message_bytes"]
        assert own["payload_bytes"] > 0
    devices = [{one.device for one in ledgers.connections} for ledgers in found.values()]
    assert [len(one) for one in devices] == [3, 2]
    assert devices[0].isdisjoint(devices[1])


def strike(who: Any, iteration: int, how: Any, lasting: str = "300ms") -> dict[str, Any]:
    return {"who": who, "when": {"iteration": iteration}, "how": how, "lasting": lasting}


def test_devices_and_the_server_under_faults_by_the_wall_clock(tmp_path: Path) -> None:
    faults = [
        strike({"devices": ["worker-0"]}, 8, "freeze", "2s"),  # which its aggregator suspects
        strike({"devices": ["worker-1"]}, 12, "kill"),
        strike({"devices": ["worker-2"]}, 16, "partition"),
        strike({"devices": ["worker-3", "worker-4"]}, 20, "kill"),  # all devices of a cluster
        strike({"devices": ["worker-1"]}, 40, {"kind": "slow", "factor": 3}),
        strike("server", 60, "kill"),
    ]
    path = written(
        tmp_path,
        clock="wall",
        algorithms=[ALL, SPARSE],
        devices={"workers": 5, "suspect_after": "700ms"},
        network={"clusters": [*UNSHAPED["clusters"][:1], *UNSHAPED_REGION]},
        training={"updates": 90},
        compute={"distribution": "constant", "mean": "5ms"},
        waiting={"distribution": "constant", "mean": "10ms"},
        evaluation={"every": 30, "images": 100},
        checkpoints={"every": 10},
        faults=faults,
    )
    done = execute_here(load(path), tmp_path / "out")
    for summary in done.summaries:
        assert (summary["ended"], summary["updates"]) == ("completed", 90), summary["reason"]
        assert summary["workers_lost"] == 0
        assert {"freeze", "kill", "partition", "slow"} == summary["faults"].keys()
        assert summary["suspected"] >= 1
        traffic = summary["traffic"]
        # Only the killed server could not tell what it had received.
        assert {one["reason"] for one in traffic["differences"]} == {SERVER_KILLED}
        verdicts = {name: one["reconciled"] for name, one in traffic["servers"].items()}
        aggregators = {f"aggregator-{index}": True for index in range(3)}
        assert verdicts == {"server": False, **aggregators}
        rows = read_updates(done.directory / summary["algorithm"])
        made = rows["iteration"].to_numpy()[rows["applied"].to_numpy()]
        assert sorted(set(made.tolist())) == list(range(1, 91))


TREE: dict[str, Any] = {
    "clock": "wall",
    "algorithms": [ALL],
    "devices": {"workers": 5, "suspect_after": "500ms"},
    "network": {"clusters": [*UNSHAPED["clusters"][:1], *UNSHAPED_REGION]},
    "training": {"updates": 120},
    "compute": {"distribution": "constant", "mean": "5ms"},
    "waiting": {"distribution": "constant", "mean": "10ms"},
    "evaluation": {"every": 30, "images": 100},
}
"""Three workers below aggregator-0, and two below aggregator-1, which is below aggregator-2."""


def test_aggregators_under_faults_by_the_wall_clock(tmp_path: Path) -> None:
    first, inner, outer = ({"devices": [f"aggregator-{i}"]} for i in range(3))
    faults = [
        strike(first, 10, "kill"),
        strike(inner, 14, "partition"),
        strike(outer, 40, "freeze", "1500ms"),  # which the server suspects
        strike(inner, 60, "kill"),
        strike({"devices": ["worker-3"]}, 62, "kill", "100ms"),  # while its aggregator is away
        strike(first, 75, "stop-network", "100ms"),
        strike(first, 80, {"kind": "slow", "uplink": "20mbit"}),
    ]
    # After an outage of 100 ms TCP may wait for 2.1 s; one that cannot hear of the end is given up.
    spec = TREE | {"training": {"updates": 420}, "faults": faults}
    done = execute_here(load(written(tmp_path, **spec)), tmp_path / "out")
    (summary,) = done.summaries
    assert (summary["ended"], summary["updates"]) == ("completed", 420), summary["reason"]
    assert summary["workers_lost"] == 0
    assert {"kill", "partition", "freeze", "stop-network", "slow"} == summary["faults"].keys()
    assert summary["suspected"] >= 1
    assert summary["aggregators"].keys() == {"aggregator-0", "aggregator-1", "aggregator-2"}
    traffic = summary["traffic"]
    assert {one["reason"] for one in traffic["differences"]} == {SERVER_KILLED}
    verdicts = {name: one["reconciled"] for name, one in traffic["servers"].items()}
    killed = {"aggregator-0": False, "aggregator-1": False}
    assert verdicts == {"server": True, "aggregator-2": True, **killed}
    every = Ledgers.load_all(done.directory / "hierarchical" / "traffic")
    (ledgers,) = (one for one in every if one.of == "aggregator-1")
    # Their connections with its second process; the first could not tell of its own.
    assert {one.device for one in ledgers.connections} == {"worker-3", "worker-4"}


@pytest.mark.parametrize(
    ("how", "lasting"),
    [("freeze", None), ("stop-network", None), ("kill", None), ("kill", "60s")],
)
def test_a_run_ends_while_an_aggregator_is_away(
    tmp_path: Path, how: str, lasting: str | None
) -> None:
    """One that is frozen hears of the end, and passes it on; others are killed with all below."""
    fault = strike({"devices": ["aggregator-2"]}, 30, how)
    fault = {name: one for name, one in fault.items() if name != "lasting"}
    faults = [fault if lasting is None else fault | {"lasting": lasting}]
    done = execute_here(load(written(tmp_path, **TREE, faults=faults)), tmp_path / "out")
    (summary,) = done.summaries
    assert (summary["ended"], summary["updates"]) == ("completed", 120), summary["reason"]
    assert summary["host_seconds"] < 30
    there = {"aggregator-0"} | ({"aggregator-1", "aggregator-2"} if how == "freeze" else set())
    assert summary["aggregators"].keys() == there
    for one in summary["traffic"]["differences"]:
        assert one["reason"] == SERVER_KILLED


def test_an_aggregator_that_dies_ends_the_run(command: CommandLine) -> None:
    content = ENDLESS | {"algorithms": [ALL], "network": UNSHAPED}
    started = command.start_run(content)
    started.until_training()
    _, aggregator, *_ = (
        started.nodes().values()
    )  # the server is started first, then the aggregators
    aggregator.kill()
    assert started.wait(60) == 1
    assert "the aggregator aggregator-0 died: killed by SIGKILL" in started.said


def test_under_the_wall_clock_ledgers_agree_at_each_aggregator(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        clock="wall",
        algorithms=[ALL, SPARSE],
        devices={"workers": 5},
        network=SHAPED,
        training={"updates": 20},
        compute={"distribution": "constant", "mean": "5ms"},
        waiting={"distribution": "constant", "mean": "5ms"},
        evaluation={"every": 10, "images": 100},
    )
    done = execute_here(load(path), tmp_path / "out")
    whole, sparse = done.summaries
    for summary in done.summaries:
        assert_ledgers_agree(done.directory / summary["algorithm"], summary)
    # What the server sends an aggregator is no ingress of that: 20 or more times the whole model.
    model = whole["aggregators"]["aggregator-0"]["payload_bytes"] // (3 * 20)
    wire = whole["aggregators"]["aggregator-1"]["wire_bytes"]
    assert wire < 1.15 * 2 * 21 * model
    assert whole["ingress"]["payload_bytes"] == 2 * 20 * model
    assert sparse["ingress"]["payload_bytes"] < whole["ingress"]["payload_bytes"] / 10


def test_under_the_wall_clock_each_server_has_its_slice_of_each_sum(tmp_path: Path) -> None:
    devices = {"devices": ["worker-3", "worker-4"]}  # all devices of a cluster
    path = written(
        tmp_path,
        clock="wall",
        algorithms=[ALL],
        devices={"workers": 5, "servers": 2},
        network={"clusters": [*UNSHAPED["clusters"][:1], *UNSHAPED_REGION]},
        training={"updates": 60},
        compute={"distribution": "constant", "mean": "5ms"},
        waiting={"distribution": "constant", "mean": "10ms"},
        evaluation={"every": 20, "images": 100},
        checkpoints={"every": 10},
        faults=[
            strike(devices, 10, "kill"),
            strike({"devices": ["worker-1"]}, 15, "freeze"),
            strike({"devices": ["server-1"]}, 30, "kill"),
        ],
    )
    done = execute_here(load(path), tmp_path / "out")
    (summary,) = done.summaries
    assert (summary["ended"], summary["updates"]) == ("completed", 60), summary["reason"]
    assert summary["faults"].keys() == {"freeze", "kill"}
    assert summary["workers_lost"] == 0
    traffic = summary["traffic"]
    assert {one["reason"] for one in traffic["differences"]} == {SERVER_KILLED}
    verdicts = {name: one["reconciled"] for name, one in traffic["servers"].items()}
    aggregators = {f"aggregator-{index}": True for index in range(3)}
    assert verdicts == {"server-0": True, "server-1": False, **aggregators}
    rows = read_updates(done.directory / summary["algorithm"]).to_pydict()
    for server in range(2):
        made = {
            iteration
            for iteration, of, applied in zip(
                rows["iteration"], rows["server"], rows["applied"], strict=True
            )
            if of == server and applied
        }
        assert made == set(range(1, 61))
    assert {"aggregator-0", "aggregator-2"} <= summary["aggregators"].keys()

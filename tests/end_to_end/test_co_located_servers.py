"""Servers on the machines of workers: both clocks, and emulation and simulation agree, to the bit."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.command import execute_here
from testbed.experiment.load import load
from testbed.results.reading.journals import read_updates
from testbed.results.reading.recorded_tables import read_over_links
from testbed.run_tables import LinkBytes
from testbed.runs.ledgers.ledgers import Ledgers
from tests.end_to_end.agreement import pairs

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

CO_LOCATED = Path(__file__).parents[2] / "experiments" / "agree-co-located.yaml"


def written(tmp_path: Path, **changes: Any) -> Path:
    spec = yaml.safe_load(CO_LOCATED.read_text(encoding="utf-8")) | changes
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return path


def over_links(run: Path) -> dict[tuple[str, str], LinkBytes]:
    return {(use.node, use.direction): use for use in read_over_links(run)}


def test_emulation_and_simulation_agree(tmp_path: Path) -> None:
    content = yaml.safe_load(CO_LOCATED.read_text(encoding="utf-8"))
    sparse, _, synchronous = content["algorithms"]
    found = []
    # Of a few small messages the wire bytes depend too much on when the host acknowledges them.
    for algorithm, updates in ((sparse, 60), (synchronous, 15)):
        path = written(tmp_path, training={"updates": updates}, algorithms=[algorithm])
        found += pairs(path, tmp_path)
    for pair in found:
        assert pair.differences() == [], pair.emulated["algorithm"]
        assert abs(pair.wire_ratio - 1) < 0.005
        (emulated,) = tmp_path.glob(f"namespaces/*/*/{pair.emulated['algorithm']}")
        (simulated,) = tmp_path.glob(f"simulated/*/*/{pair.emulated['algorithm']}")
        counted, modelled = over_links(emulated), over_links(simulated)
        assert counted.keys() == modelled.keys()
        assert {node for node, _ in counted} >= {"machine-0", "machine-2", "worker-3", "village"}
        assert not {node for node, _ in counted} & {"worker-0", "server-0"}
        for direction, use in counted.items():
            assert modelled[direction].bytes == pytest.approx(use.bytes, rel=0.01), direction


def test_workers_that_fail_and_arrive_leave_their_servers_where_they_are(tmp_path: Path) -> None:
    def of(worker: str, time: str, how: Any, lasting: str = "500ms") -> dict[str, Any]:
        who = {"devices": [worker]}
        return {"who": who, "when": {"time": time}, "how": how, "lasting": lasting}

    late = {
        "name": "late",
        "number": 2,
        "arrives": {"distribution": "exponential", "mean": "300ms"},
    }
    path = written(
        tmp_path,
        algorithms=["asgd"],
        devices={
            "workers": 6,
            "servers": 3,
            "placement": "co-located",
            "suspect_after": "1s",
            "classes": [{"name": "early", "number": 4}, late],
        },
        network={"uplink": "50mbit", "downlink": "100mbit", "delay": "5ms"},
        training={"updates": 60},
        faults=[
            of("worker-0", "600ms", "freeze"),
            of("worker-1", "700ms", "kill"),
            of("worker-2", "500ms", {"kind": "slow", "factor": 3}),
            of("worker-4", "400ms", "stop-network", "700ms"),
            of("worker-3", "1200ms", {"kind": "slow", "uplink": "2mbit"}, "300ms"),
            # The link of a machine is its server's as well, and the outages of two overlap.
            of("worker-0", "300ms", "stop-network", "900ms"),
            of("worker-3", "250ms", "partition", "300ms"),
            of("worker-2", "900ms", "partition"),
            of("worker-2", "200ms", {"kind": "slow", "uplink": "4mbit", "downlink": "3mbit"}, "1s"),
        ],
    )
    (pair,) = pairs(path, tmp_path)
    # What TCP sends again after an outage is measured, and not modelled.
    assert [text for text in pair.differences() if not text.startswith("wire bytes")] == []
    assert pair.emulated["faults"] == pair.simulated["faults"]
    kinds = {"freeze", "kill", "slow", "stop-network", "partition", "away"}
    assert pair.emulated["faults"].keys() == kinds


def test_machines_follow_traces_and_a_run_ends_whose_server_is_cut_off_for_good(
    tmp_path: Path,
) -> None:
    (tmp_path / "rates.csv").write_text(
        "time,uplink,downlink\n0,8mbit,40mbit\n0.3,0,16mbit\n0.4,24mbit,6mbit\n", encoding="utf-8"
    )
    path = written(
        tmp_path,
        algorithms=["asgd"],
        network={"trace": {"file": "rates.csv", "repeat": "1s"}, "delay": "5ms"},
        training={"updates": 60},
        faults=[
            {"who": {"devices": ["worker-4"]}, "when": {"time": "900ms"}, "how": "kill"},
            {"who": {"devices": ["worker-1"]}, "when": {"iteration": 20}, "how": "stop-network"},
        ],
    )
    (pair,) = pairs(path, tmp_path)
    assert pair.differences() == []
    assert pair.emulated["ended"] == "failed"
    assert 0 < pair.emulated["updates"] < 60
    assert pair.emulated["updates"] == pair.simulated["updates"]
    assert abs(pair.wire_ratio - 1) < 0.005


BY_WALL_CLOCK: dict[str, Any] = {
    "clock": "wall",
    "algorithms": ["asgd"],
    "devices": {"workers": 3, "servers": 2, "placement": "co-located"},
    "network": {"uplink": "50mbit", "downlink": "80mbit"},
}


def test_by_the_wall_clock_a_machine_is_cut_off_and_linked_again(tmp_path: Path) -> None:
    faults = [
        {"who": {"devices": [worker]}, "when": {"time": time}, "how": how, "lasting": "400ms"}
        for worker, time, how in (
            ("worker-0", "200ms", "stop-network"),
            ("worker-1", "400ms", "partition"),
            ("worker-1", "500ms", {"kind": "slow", "uplink": "5mbit"}),
        )
    ]
    path = written(
        tmp_path,
        **BY_WALL_CLOCK,
        training={"updates": 40},
        faults=faults,
    )
    done = execute_here(load(path), tmp_path / "out")
    (summary,) = done.summaries
    assert (summary["ended"], summary["traffic"]["reconciled"]) == ("completed", True)
    assert summary["faults"] == {"stop-network": 1, "partition": 1, "slow": 1}
    table = read_updates(done.directory / summary["algorithm"])
    rows = {name: table[name].to_numpy() for name in ("time", "server", "worker")}
    cut = (rows["time"] > 0.35) & (rows["time"] < 0.6)
    # Nothing comes from other machines to server 0; what was read before may still be applied.
    assert not (cut & (rows["server"] == 0) & (rows["worker"] != 0)).any()


def test_under_the_wall_clock_ledgers_tell_local_bytes_apart(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        **BY_WALL_CLOCK,
        training={"updates": 60},
    )
    done = execute_here(load(path), tmp_path / "out")
    (summary,) = done.summaries
    assert (summary["ended"], summary["traffic"]["reconciled"]) == ("completed", True)
    run = done.directory / summary["algorithm"]
    inside: dict[str, tuple[int, int]] = {}
    into: dict[str, int] = {}
    for ledgers in Ledgers.load_all(run / "traffic"):
        own = f"worker-{str(ledgers.of).rpartition('-')[2]}"
        (local,) = (one for one in ledgers.connections if one.device == own)
        assert local not in ledgers.over_links
        assert len(ledgers.over_links) == len(ledgers.connections) - 1
        assert ledgers.counter is not None
        inside[str(ledgers.of)] = local.payload_bytes, local.message_bytes
        into[str(ledgers.of)] = int(ledgers.counter["bytes"])
    after = summary["ingress_after_drain"]
    local_bytes = after["local_payload_bytes"], after["local_message_bytes"]
    assert local_bytes == tuple(map(sum, zip(*inside.values(), strict=True)))
    assert after["wire_bytes"] == sum(into.values())
    over = after["message_bytes"] - after["local_message_bytes"]
    assert after["wire_bytes"] > over > 0
    # What came into a server, came over its machine's downlink, as did what its worker was sent.
    used = over_links(run)
    for number in range(2):
        assert (used[f"machine-{number}", "downlink"].bytes or 0) > into[f"server-{number}"]

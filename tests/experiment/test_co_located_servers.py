"""Servers on the machines of workers in the experiment file: where they are, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cli.plan_text import describe
from testbed.errors import SpecError
from testbed.experiment.load import dump, load
from testbed.network.links import CORE, Shape
from testbed.planning.plan import Plan, plan

BASE: dict[str, Any] = {
    "name": "co-located",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 100},
    "clock": "virtual",
    "algorithms": ["asgd"],
    "network": {"uplink": "10mbit", "downlink": "20mbit", "delay": "2ms"},
    "compute": {"distribution": "constant", "mean": "10ms"},
}
DEVICES: dict[str, Any] = {"workers": 4, "servers": 2, "placement": "co-located"}
CLUSTERS = [
    {"name": "campus", "number": 1, "uplink": "100mbit"},
    {"name": "village", "number": 3, "uplink": "5mbit"},
]


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(BASE | {"devices": DEVICES} | changes), encoding="utf-8")
    return path


def planned(tmp_path: Path, **changes: Any) -> Plan:
    (one,) = plan(load(written(tmp_path, **changes)))
    return one


def test_a_server_shares_the_link_of_its_worker(tmp_path: Path) -> None:
    found = planned(tmp_path)
    network = found.asked_network
    assert found.local == {"server-0": "worker-0", "server-1": "worker-1"}
    for number in range(2):
        for name in (f"worker-{number}", f"server-{number}"):
            link = network.link(name)
            assert link.router == f"machine-{number}"
            assert (link.uplink, link.downlink) == (Shape(), Shape())
    machine = next(link for link in network.links if link.node == "machine-1")
    assert (machine.uplink, machine.downlink) == (Shape(10_000_000, 0.002), Shape(20_000_000))
    assert machine.router == network.link("worker-3").router == CORE
    assert network.link("worker-3").uplink == machine.uplink
    assert network.path("worker-0", "server-0") == ("machine-0",)
    assert network.path("worker-0", "server-1") == ("machine-0", CORE, "machine-1")


def test_conversations_over_links_share_the_machines_link(tmp_path: Path) -> None:
    found = planned(tmp_path, clock="wall", network={"uplink": "10mbit", "downlink": "20mbit"})
    assert len(found.conversations) == 4 * 2 - 2
    machine = next(link for link in found.links if link.node == "machine-0")
    assert found.shared[machine.index, True] == [
        ("worker-0", "server-1"),
        ("server-0", "worker-1"),
        ("server-0", "worker-2"),
        ("server-0", "worker-3"),
    ]


def test_machines_are_in_the_clusters_of_their_workers(tmp_path: Path) -> None:
    found = planned(tmp_path, network=BASE["network"] | {"clusters": CLUSTERS})
    routers = {link.node: link.router for link in found.links}
    assert (routers["machine-0"], routers["machine-1"]) == ("campus", "village")
    assert (routers["worker-2"], routers["evaluator"]) == ("village", CORE)
    lines = "\n".join(describe([found]))
    assert "on machine-1 with worker-1, whose link it shares" in lines
    assert "village       worker-1 to worker-3; shared link: uplink 5mbit" in lines


def test_machines_are_attached_to_a_graph(tmp_path: Path) -> None:
    graph = {
        "nodes": [{"id": 0, "name": "east"}, {"id": 1, "name": "west"}],
        "edges": [{"source": 0, "target": 1, "rate": "5mbit", "delay": "1ms"}],
    }
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph), encoding="utf-8")
    section = {"graph": {"file": str(path), "attach": "in-turn"}}
    found = planned(tmp_path, network=BASE["network"] | section)
    at = {link.node: link.router for link in found.links}
    assert {at["machine-0"], at["machine-1"], at["worker-2"]} == {"east", "west"}
    assert at["server-0"] == at["worker-0"] == "machine-0"


def test_the_placement_is_kept_in_the_spec_and_left_out_where_it_is_apart(tmp_path: Path) -> None:
    assert "placement: co-located" in dump(load(written(tmp_path)))
    assert "placement" not in dump(load(written(tmp_path, devices={"workers": 4, "servers": 2})))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": DEVICES | {"servers": 5}}, "devices.servers: .*needs the machine of a worker"),
        ({"devices": DEVICES | {"servers": 1}}, "devices.placement: one server has a machine"),
        (
            {"algorithms": ["asgd", "dbw"]},
            "devices.servers: dbw decides for all parameters at once",
        ),
        ({"network": {"server": {"uplink": "1gbit"}}}, "network.server: co-located servers use"),
        (
            {"network": {"graph": {"topohub": "sndlib/abilene", "server": "ATLAng"}}},
            "network.graph.server: co-located servers are where",
        ),
        (
            {"network": {"clusters": [{"name": "machine-0", "share": "100%"}]}},
            "'machine-0' is the name of a node",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        load(written(tmp_path, **changes))


@pytest.mark.parametrize(
    "how",
    ["kill", "freeze", "stop-network", "partition"]
    + [{"kind": "slow"} | one for one in ({"factor": 2}, {"uplink": "1mbit"})],
    ids=str,
)
@pytest.mark.parametrize("who", ["each", {"devices": ["worker-0"]}], ids=str)
def test_a_worker_beside_a_server_may_fail_as_any_other(tmp_path: Path, how: Any, who: Any) -> None:
    fault = {"who": who, "when": {"time": "1s"}, "how": how}
    (rule,) = planned(tmp_path, faults=[fault]).settings.faults.rules
    assert 0 in rule.devices
    classes = [{"name": "all", "share": "100%", "faults": [{"when": {"time": "1s"}, "how": how}]}]
    (rule,) = planned(tmp_path, devices=DEVICES | {"classes": classes}).settings.faults.rules
    assert list(rule.devices) == [0, 1, 2, 3]


def test_a_worker_beside_a_server_arrives_and_leaves(tmp_path: Path) -> None:
    late = {"name": "late", "number": 2, "arrives": "1s", "leaves": "3s", "returns": "1s"}
    classes = [late, {"name": "early", "number": 2}]
    found = planned(tmp_path, devices=DEVICES | {"classes": classes})
    assert 1 in {one for rule in found.settings.faults.rules for one in rule.devices}


def test_a_machines_link_follows_its_workers_trace(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("time,uplink\n0,0\n1,5mbit\n", encoding="utf-8")
    found = planned(tmp_path, network={"trace": "rates.csv"}, clock="wall")
    traces = found.settings.followed_traces
    assert traces[0][0] is not None and traces[0][0].rates == [0, 5_000_000]
    machine = next(link for link in found.links if link.node == "machine-0")
    assert machine.uplink == Shape(5_000_000)

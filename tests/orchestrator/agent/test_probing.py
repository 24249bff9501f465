"""Probed links: their choice, the events about them, and that no count of a run includes a probe."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from testbed.experiment.spec import Spec
from testbed.messages.agent_reports import (
    CountersSampled,
    LinksProbed,
    NetworkBuilt,
    TrafficStopped,
)
from testbed.messages.planned_nodes import PlannedNetwork
from testbed.messages.requests import BuildNetwork, StopTraffic
from testbed.network.links import Link, Shape
from testbed.orchestrator.agent import probing
from testbed.planning import node_plan, probed_links
from testbed.planning.plan import Plan, plan
from testbed.runs import link_records
from testbed.runs.outcome import manifest
from tests.orchestrator.agent.test_agent import Harness
from traffic.counters import COUNTS

MBIT = 1_000_000


def real(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that makes namespaces."""
    found: Callable[..., None] = pytest.mark.real(pytest.mark.exercises("namespaces")(test))
    return found


def planned(network: str, workers: int = 20, more: str = "", algorithm: str = "asgd") -> Plan:
    text = (
        "name: links\ndataset: digits\nmodel: mlp\ntraining: {updates: 10}\n"
        f"algorithms: [{algorithm}]\ndevices: {{workers: {workers}{more}}}\n{network}"
    )
    (one,) = plan(Spec.model_validate(yaml.safe_load(text)))
    return one


def test_a_sample_of_equal_links_is_probed() -> None:
    one = planned("network: {uplink: 10mbit, downlink: 100mbit}\n")
    chosen = probed_links.sample(one)
    assert [link.node for link in chosen] == [f"worker-{i}" for i in (0, 2, 5, 8, 10, 13, 16, 19)]
    assert all(
        (link.uplink, link.downlink) == (Shape(10 * MBIT), Shape(100 * MBIT)) for link in chosen
    )


def test_each_kind_of_link_is_probed_except_unshaped_links() -> None:
    classes = (
        ", classes: [{name: a, share: 25%, uplink: 1mbit}, {name: b, share: 25%, downlink: 2mbit}, "
        "{name: c, share: 50%}]"
    )
    one = planned("", more=classes)
    chosen = probed_links.sample(one)
    kinds = [(link.uplink.rate, link.downlink.rate) for link in chosen]
    assert sorted(set(kinds), key=str) == [(MBIT, None), (None, 2 * MBIT)]
    assert len(kinds) == 2 * 4
    assert len({link.node for link in chosen}) == len(chosen)
    each = (f"{{name: c{i}, number: 1, uplink: {i + 1}mbit}}" for i in range(40))
    assert (
        len(probed_links.sample(planned("", 40, f", classes: [{', '.join(each)}]")))
        == probed_links.MOST
    )


@pytest.mark.parametrize(
    "network",
    [
        "",
        "network: {uplink: 10mbit, probe: false}\n",
        "network: {uplink: 10mbit}\nclock: virtual\ncompute: {mean: 1s}\n",
        "network: {uplink: 10mbit}\nengine: simulation\ncompute: {mean: 1s}\n",
    ],
)
def test_some_plans_probe_no_link(network: str, tmp_path: Path) -> None:
    one = planned(network)
    assert probed_links.sample(one) == []
    assert node_plan.network(one, tmp_path)["probe"] == []
    links = manifest(one)["links"]
    if "probe" in network:
        assert (links["shaped"], links["probed"]) == (20, 0)
        assert links["unmeasured"] == "switched off by network.probe"
    else:
        assert links is None


def test_peers_are_probed_as_well() -> None:
    one = planned("network: {uplink: 10mbit}\n", 3, algorithm="all-to-all")
    assert [link.node for link in probed_links.sample(one)] == ["peer-0", "peer-1", "peer-2"]


def direction(**changed: Any) -> Any:
    measured = {
        "rate": 9_990_000,
        "at_least": False,
        "delay": 0.0401,
        "loss": 0.01,
        "loss_between": [0.002, 0.03],
        "packets": 1500,
    }
    whole = {
        "device": "worker-3",
        "direction": "uplink",
        "asked": {"rate": 10 * MBIT, "delay": 0.04, "loss": 0.01},
        "measured": measured | changed.pop("measured", {}),
        "tries": 1,
        "off": [],
        "unmeasured": None,
        "failed": None,
        "drained": True,
    }
    return whole | changed


def told(*directions: Any) -> list[tuple[str, str, str | None]]:
    one = planned("network: {uplink: 10mbit}\n")
    return list(
        link_records.events(link_records.record(one, {"directions": directions, "seconds": 0.3}))
    )


def test_measured_links_are_reported_in_events() -> None:
    assert told(direction()) == [
        ("info", "1 of 20 shaped links were measured and are as asked", None)
    ]
    wrong = direction(
        off=["rate", "delay", "loss"],
        measured={"rate": 291_700_000, "at_least": True, "delay": 0.0001, "loss": 0.0},
    )
    assert told(direction(device="worker-1"), wrong) == [
        (
            "warning",
            "its uplink is not as asked: a rate of at least 291.7 Mbit/s where 10 Mbit/s is asked, "
            "a delay of 0.10 ms where 40 ms is asked, "
            "a loss of 0 % of 1,500 packets where 1 % is asked",
            "worker-3",
        )
    ]
    refused = direction(failed="nothing can be sent: Network is unreachable") | {"measured": None}
    assert told(refused) == [
        (
            "warning",
            "its uplink could not be measured: nothing can be sent: Network is unreachable",
            "worker-3",
        )
    ]


def test_a_probe_that_fails_says_why_and_raises_nothing() -> None:
    one = planned("network: {uplink: 10mbit}\n")
    asked = [Link("worker-0", 2, Shape(MBIT))]
    found = probing.probe_links(asked, {}, lambda: False)
    assert found == {"failed": "KeyError: 'worker-0'"}
    links = link_records.record(one, found)
    assert (links["probed"], links["unmeasured"]) == (0, found["failed"])
    ((level, text, _),) = link_records.events(links)
    assert level == "warning" and "KeyError" in text


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "log", {})
    yield harness
    harness.close()


def probed_by(agent: Harness, plan_sent: PlannedNetwork) -> Any:
    """Let the agent build a network; return what it found about the links."""
    agent.ask(BuildNetwork(plan_sent))
    found = agent.event(LinksProbed).result
    agent.event(NetworkBuilt)
    return dict(found)


def network_of(one: Plan, folder: Path) -> PlannedNetwork:
    folder.mkdir()
    return node_plan.network(one, folder)


@real
@pytest.mark.parametrize("served", [True, False])
def test_the_probe_is_in_no_count(agent: Harness, tmp_path: Path, served: bool) -> None:
    one = planned(
        "network: {uplink: 5mbit, downlink: 20mbit}\ntraffic: {period: 100ms}\n",
        3,
        algorithm="asgd" if served else "all-to-all",
    )
    found = probed_by(agent, network_of(one, tmp_path / "traffic"))
    assert len(found["directions"]) == 6
    assert all(way["measured"]["packets"] > 50 for way in found["directions"])
    assert agent.counter()["bytes"] == 0
    agent.event(CountersSampled)
    rows = np.frombuffer(agent.event(CountersSampled).raw, COUNTS)
    for name in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "class_bytes", "class_frames"):
        assert set(rows[name].tolist()) <= {0, -1}, name
    assert set(rows["backlog_packets"].tolist()) <= {0, -1}
    agent.ask(StopTraffic())
    stopped = agent.event(TrafficStopped)
    assert stopped.capture is not None
    assert stopped.capture["records"] == 0 and stopped.ingress["bytes"] == 0


@real
@pytest.mark.parametrize("rate", [None, 20 * MBIT])
def test_a_link_that_is_built_otherwise_than_planned_is_seen(
    agent: Harness, tmp_path: Path, rate: int | None
) -> None:
    one = planned("network: {uplink: 10mbit, downlink: 50mbit}\n", 4)
    sent: Any = copy.deepcopy(network_of(one, tmp_path / "traffic"))
    (broken,) = (link for link in sent["links"] if link["node"] == "worker-2")
    broken["uplink"]["rate"] = rate
    found = probed_by(agent, sent)
    events = list(link_records.events(link_records.record(one, found)))
    mine = [text for level, text, device in events if device == "worker-2" and level == "warning"]
    assert len(mine) == 1 and "its uplink is not as asked: a rate of" in mine[0], events
    assert "where 10 Mbit/s is asked" in mine[0]

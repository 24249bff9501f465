"""Graphs of routers from files and from topohub, and the networks that are made of them."""

import json
from pathlib import Path
from typing import Any

import networkx  # type: ignore[import-untyped]
import pytest

from testbed.errors import SpecError
from testbed.experiment.load import dump, load
from testbed.experiment.sections.graph import GraphSpec
from testbed.experiment.spec import Spec
from testbed.network.links import CORE, Shape
from testbed.planning import graph_source
from testbed.planning.plan import Plan, plan

BASE = """
name: graph
dataset: digits
model: mlp
clock: virtual
compute: {mean: 100ms}
training: {updates: 100}
algorithms: [asgd]
devices: {workers: 6}
"""
TRIANGLE: dict[str, Any] = {
    "nodes": [
        {"id": 0, "name": "Aachen"},
        {"id": 1, "name": "Bad Ems"},
        {"id": 2, "name": "Celle"},
    ],
    "edges": [
        {"source": 0, "target": 1, "rate": "10mbit", "delay": "3ms"},
        {"source": 1, "target": 2, "dist": 200},
        {"source": 2, "target": 0, "rate": 5_000_000, "delay": 0.001},
    ],
}


def read(folder: Path, graph: str, *overrides: str, server: str = "") -> Spec:
    path = folder / "spec.yaml"
    path.write_text(BASE + f"network: {{{server}graph: {graph}}}\n")
    return load(path, overrides)


def planned(folder: Path, graph: str, *overrides: str) -> Plan:
    (one,) = plan(read(folder, graph, *overrides))
    return one


def written(folder: Path, content: dict[str, Any] = TRIANGLE) -> str:
    (folder / "graph.json").write_text(json.dumps(content))
    return "{file: graph.json, rate: 1gbit, attach: in-turn}"


def test_links_are_as_the_file_says_or_as_the_section_does(tmp_path: Path) -> None:
    network = planned(tmp_path, written(tmp_path), "clock=wall").network
    assert network.routers == (CORE, "Aachen", "Bad-Ems", "Celle")
    first, second, third, to_core = network.links[-4:]
    assert (first.node, first.router) == ("Aachen", "Bad-Ems")
    assert first.uplink == first.downlink == Shape(10_000_000, 0.003)
    assert second.uplink.rate == 10**9
    assert second.uplink.delay == pytest.approx(0.001)  # 200 km of fibre
    assert third.uplink == Shape(5_000_000, 0.001)
    # Celle is 1 ms from both others.
    assert (to_core.node, to_core.router, to_core.uplink) == ("Celle", CORE, Shape())
    routers = [network.link(f"worker-{i}").router for i in range(6)]
    assert routers == ["Aachen", "Bad-Ems", "Celle"] * 2
    # Directly it is 3 ms, and over Celle 2.
    ways = [network.links_by_index[index] for index, _ in network.route("worker-0", "worker-1")]
    assert ways[1:-1] == [third, second]


def test_links_may_have_jitter_loss_and_a_queue_in_both_directions(tmp_path: Path) -> None:
    first, second, third = TRIANGLE["edges"]
    own = first | {"jitter": "1ms", "loss": "1%", "queue": "9kB"}
    graph = written(tmp_path, TRIANGLE | {"edges": [own, second, third | {"rate": "unlimited"}]})
    graph = graph.replace("rate: 1gbit", "rate: 1gbit, jitter: 500us, queue: 20kB")
    network = planned(tmp_path, graph, "clock=wall").network
    one, other, last, _ = network.links[-4:]
    assert one.uplink == one.downlink == Shape(10**7, 0.003, 0.01, jitter=0.001, queue=9000)
    assert other.uplink == Shape(10**9, pytest.approx(0.001), jitter=0.0005, queue=20_000)  # type: ignore[arg-type]
    assert last.downlink == Shape(None, 0.001, jitter=0.0005)  # nothing waits without a rate
    with pytest.raises(
        SpecError, match=r"the link Aachen to Bad-Ems has one\), or use `clock: wall`"
    ):
        planned(tmp_path, graph)


def test_the_virtual_clock_gets_the_jitter_of_the_ways(tmp_path: Path) -> None:
    graph = written(tmp_path).replace("rate: 1gbit", "rate: 1gbit, jitter: 500us")
    route = planned(tmp_path, graph).settings.route(0)
    assert route is not None
    assert list(route.up_jitters) == list(route.down_jitters) == [0.0005]


def test_the_virtual_clock_gets_the_ways_to_the_server(tmp_path: Path) -> None:
    settings = planned(tmp_path, written(tmp_path)).settings
    rates = settings.network.shared_rates
    aachen = settings.route(0)
    assert aachen is not None
    assert [rates[i] for i in aachen.up] == [rates[i] for i in aachen.down] == [5_000_000]
    assert (aachen.up_delay, aachen.down_delay) == (0.001, 0.001)
    celle = settings.route(2)
    assert celle is not None and (list(celle.up), celle.up_delay) == ([], 0.0)


def test_the_virtual_clock_gets_each_direction_of_a_directed_graph(tmp_path: Path) -> None:
    edges = [
        {"source": 0, "target": 1, "rate": "100mbit", "delay": "5ms"},
        {"source": 1, "target": 0, "rate": "10mbit", "delay": "1ms"},
    ]
    graph = written(tmp_path, {"directed": True, "nodes": TRIANGLE["nodes"][:2], "edges": edges})
    one = planned(tmp_path, graph.replace("}", ", server: Aachen}"))
    route = one.settings.route(1)  # at Bad Ems
    rates = one.settings.network.shared_rates
    assert route is not None
    assert ([rates[i] for i in route.up], route.up_delay) == ([10_000_000], 0.001)
    assert ([rates[i] for i in route.down], route.down_delay) == ([100_000_000], 0.005)


def test_where_devices_are_attached_at_random_depends_on_the_seed_only(tmp_path: Path) -> None:
    graph = "{topohub: sndlib/germany50}"

    def routers(*overrides: str) -> list[str]:
        one = planned(tmp_path, graph, "devices.workers=40", *overrides)
        assert len(one.network.routers) == 51
        return [one.network.link(worker).router for worker in one.workers]

    assert routers() == routers("training.updates=5") != routers("seed=2")
    assert len(set(routers())) > 20


def test_graphml_is_read_with_its_attributes(tmp_path: Path) -> None:
    graph = networkx.Graph()
    graph.add_node("n0", name="Here")
    graph.add_node("n1", name="There")
    graph.add_edge("n0", "n1", rate="2mbit", delay=0.004)
    networkx.write_graphml(graph, tmp_path / "two.graphml")
    one = planned(tmp_path, "{file: two.graphml, server: There}", "clock=wall")
    assert one.network.routers == (CORE, "Here", "There")
    assert one.network.links[-2].uplink == Shape(2_000_000, 0.004)
    assert one.network.links[-1].node == "There"


def test_names_that_are_not_unique_give_way_to_the_ids(tmp_path: Path) -> None:
    same = {
        "nodes": [{"id": "a", "name": "X"}, {"id": "b", "name": "X"}],
        "links": [{"source": "a", "target": "b"}],
    }
    assert planned(tmp_path, written(tmp_path, same)).network.routers == (CORE, "a", "b")


def test_the_source_is_in_the_dumped_file(tmp_path: Path) -> None:
    text = dump(read(tmp_path, written(tmp_path)))
    assert str(tmp_path / "graph.json") in text and "topohub" not in text


def changed(**changes: Any) -> dict[str, Any]:
    return TRIANGLE | changes


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            changed(edges=TRIANGLE["edges"][:1]),
            "is not connected: no way leads from Aachen to Celle",
        ),
        (changed(nodes=[]), "has no nodes"),
        (changed(nodes=[{"name": "x"}]), "has a node without 'id': {'name': 'x'}"),
        (
            changed(edges=[{"source": 0, "target": 9}]),
            "has an edge that leads to '9', which is no node",
        ),
        (
            changed(edges=[{"source": 0, "target": 1, "rate": "fast"}]),
            "graph.json gives the edge from Aachen to Bad-Ems a wrong rate: 'fast' is not a rate",
        ),
        (
            changed(edges=[{"source": 0, "target": 1, "rate": 0}]),
            "a wrong rate: at a rate of 0 nothing would pass",
        ),
        (changed(nodes=[*TRIANGLE["nodes"], {"id": 3, "name": "core"}]), "called 'core'"),
        (changed(nodes=[*TRIANGLE["nodes"][:2], {"id": 2, "name": "worker-1"}]), "'worker-1'"),
    ],
)
def test_a_wrong_graph_is_refused_in_one_sentence(
    tmp_path: Path, content: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError) as error:
        planned(tmp_path, written(tmp_path, content))
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ("{attach: random}", "give it one source: a file, or the name of a topology of topohub"),
        ("{topohub: a, file: spec.yaml}", "give it one source"),
        ("{topohub: sndlib/atlantis}", "there is no topology 'sndlib/atlantis'"),
        ("{file: missing.json}", "there is no file 'missing.json'"),
        ("{file: spec.yaml}", "cannot be read"),
        (
            "{topohub: sndlib/germany50, server: Paris}",
            "there is no node 'Paris' in sndlib/germany50",
        ),
    ],
)
def test_a_wrong_section_is_refused(tmp_path: Path, graph: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        planned(tmp_path, graph)
    assert said in str(error.value)


def test_devices_are_in_clusters_or_at_a_graph(tmp_path: Path) -> None:
    clusters = "clusters: [{name: a, share: 1}], "
    with pytest.raises(SpecError, match="devices are in clusters, or attached to a graph"):
        read(tmp_path, "{topohub: sndlib/germany50}", server=clusters)


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ({"pos": [6.1, 50.8]}, (6.1, 50.8)),
        ({"Longitude": 6.1, "Latitude": 50.8}, (6.1, 50.8)),
        ({"x": 3, "y": 4}, (3.0, 4.0)),
        ({"pos": "here", "lon": 1.5, "lat": 2.5}, (1.5, 2.5)),
    ],
)
def test_positions_are_read_where_a_graph_has_them(
    tmp_path: Path, where: dict[str, Any], place: tuple[float, float]
) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({**TRIANGLE, "nodes": [n | where for n in TRIANGLE["nodes"]]}))
    graph = graph_source.read(GraphSpec(file=str(path)))
    assert graph.positions == dict.fromkeys(graph.routers, place)


def test_positions_of_some_nodes_are_none(tmp_path: Path) -> None:
    first, *others = TRIANGLE["nodes"]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({**TRIANGLE, "nodes": [first | {"x": 1, "y": 2}, *others]}))
    assert graph_source.read(GraphSpec(file=str(path))).positions == {}

"""Graphs in files, against networkx: the same links in each direction, or a refusal that is right."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import networkx  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.errors import SpecError
from testbed.experiment.sections.graph import GraphSpec
from testbed.planning import graph_source

IDS = st.one_of(
    st.integers(-5, 5),
    st.sampled_from(["a", "b b", "c/d", "é", "node-with-a-name-of-over-fifteen", "1e3", "x" * 70]),
    st.sampled_from([0.5, 2.25]),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
KINDS = st.sampled_from(
    [networkx.Graph, networkx.DiGraph, networkx.MultiGraph, networkx.MultiDiGraph]
)
RATES = st.sampled_from([10_000_000, 1e6, "5mbit", "unlimited", 0, -1, "fast", float("nan"), True])
DELAYS = st.sampled_from([0, 0.001, "2ms", 5, -0.5, float("inf"), "soon"])
GOOD_RATES = {10_000_000: 10**7, 1e6: 10**6, "5mbit": 5 * 10**6, "unlimited": None}
GOOD_DELAYS = {0: 0.0, 0.001: 0.001, "2ms": 0.002, 5: 5.0}


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """Draw a graph, mostly connected and with an edge back where it is directed."""
    graph = draw(KINDS)()
    nodes = draw(st.lists(IDS, min_size=1, max_size=5, unique_by=str))
    graph.add_nodes_from(nodes)
    pairs = [(draw(st.sampled_from(nodes[:i])), nodes[i]) for i in range(1, len(nodes))]
    pairs += draw(st.lists(st.tuples(*[st.sampled_from(nodes)] * 2), max_size=2))
    wrong = draw(st.sampled_from([0, 0, 0, 1]))
    for one, other in pairs:
        for ends in ((one, other), (other, one))[: draw(st.sampled_from([2, 2, 2, 1]))]:
            values = {"rate": draw(RATES), "delay": draw(DELAYS)} if wrong else {}
            if not wrong and draw(st.booleans()):
                values["rate"] = draw(st.sampled_from(list(GOOD_RATES)))
            if not wrong and draw(st.booleans()):
                values["delay"] = draw(st.sampled_from(list(GOOD_DELAYS)))
            graph.add_edge(*ends, **values)
            if not graph.is_directed():
                break
    return graph


def is_good(values: dict[str, Any]) -> bool:
    """Return True if an edge's rate and delay are quantities."""
    return all(
        key not in values or (not isinstance(values[key], bool) and values[key] in good)
        for key, good in (("rate", GOOD_RATES), ("delay", GOOD_DELAYS))
    )


def can_be_built(graph: Any) -> bool:
    """Return True for a graph whose edges are links with two directions, between all of its nodes."""
    pairs = Counter((one, other) for one, other, *_ in graph.edges)
    both_ways = not graph.is_directed() or (
        all(count == 1 for count in pairs.values()) and all(pair[::-1] in pairs for pair in pairs)
    )
    return (
        both_ways
        and not any(one == other for one, other in pairs)
        and all(is_good(values) for *_, values in graph.edges(data=True))
        and networkx.is_connected(graph.to_undirected())
    )


def directions(graph: Any, ids: list[Any]) -> Counter[Any]:
    """Return how often each direction is in networkx's graph, with its rate and delay."""
    found: Counter[Any] = Counter()
    for one, other, values in graph.edges(data=True):
        shape = GOOD_RATES[values.get("rate", "unlimited")], GOOD_DELAYS[values.get("delay", 0)]
        ways = [(one, other)] if graph.is_directed() else [(one, other), (other, one)]
        found.update((ids.index(way[0]), ids.index(way[1]), *shape) for way in ways)
    return found


def ours(path: Path) -> Counter[Any]:
    graph = graph_source.read(GraphSpec(file=str(path)))
    found: Counter[Any] = Counter()
    for edge in graph.edges:
        one, other = graph.routers.index(edge.one), graph.routers.index(edge.other)
        found[one, other, edge.there.rate, edge.there.delay] += 1
        found[other, one, edge.back.rate, edge.back.delay] += 1
    return found


@given(graphs(), st.sampled_from(["edges", "links"]), st.sampled_from(["utf-8", "utf-16"]))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_json_is_read_as_networkx_reads_it(
    tmp_path: Path, graph: Any, key: str, encoding: str
) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(networkx.node_link_data(graph, edges=key)), encoding=encoding)
    theirs = networkx.node_link_graph(json.loads(path.read_text(encoding=encoding)), edges=key)
    _compare(path, theirs)


@given(graphs())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_graphml_is_read_as_networkx_reads_it(tmp_path: Path, graph: Any) -> None:
    path = tmp_path / "graph.graphml"
    for _, _, values in graph.edges(data=True):  # one type for a key, so that each is written once
        values.update({key: str(value) for key, value in values.items()})
    path.write_text("\n".join(networkx.generate_graphml(graph)))
    theirs = networkx.read_graphml(path, force_multigraph=graph.is_multigraph())
    # Text has units, as in an experiment file.
    plain = {str(value): value for good in (GOOD_RATES, GOOD_DELAYS) for value in good}
    plain = {text: value for text, value in plain.items() if not text[-1].isdigit()} | {"0": 0}
    plain["10000000"], plain["1000000.0"] = 10_000_000, 1e6
    for _, _, values in theirs.edges(data=True):
        values.update({key: plain.get(value, value) for key, value in values.items()})
    _compare(path, theirs)


def _compare(path: Path, theirs: Any) -> None:
    if not can_be_built(theirs):
        with pytest.raises(SpecError) as error:
            ours(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
    else:
        assert ours(path) == directions(theirs, list(theirs.nodes))


GRAPHML = """<?xml version="1.0" encoding="{encoding}"?>{before}
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="r" for="edge" attr.name="rate" attr.type="string">{default}</key>
<key id="d" for="edge" attr.name="delay" attr.type="double"/>
<key id="n" for="node" attr.name="name" attr.type="string"/>
<key id="y" for="node" yfiles.type="nodegraphics"/>
<graph edgedefault="{edgedefault}">
<node id="0">{in_node}</node><node id="1"/>
<edge source="0" target="1"{flag}>{in_edge}</edge>{more}
</graph>{after}</graphml>"""
PLAIN = dict.fromkeys(("before", "default", "in_node", "flag", "in_edge", "more", "after"), "")
PLAIN |= {"encoding": "utf-8", "edgedefault": "undirected"}
BACK = '<edge source="1" target="0"><data key="r">{}</data></edge>'


def graphml(folder: Path, **changes: str) -> graph_source.RouterGraph:
    path = folder / "graph.graphml"
    path.write_text(GRAPHML.format(**PLAIN | changes), encoding=changes.get("encoding", "utf-8"))
    return graph_source.read(GraphSpec(file=str(path)))


def test_each_direction_has_what_its_own_edge_says(tmp_path: Path) -> None:
    found = graphml(
        tmp_path,
        edgedefault="directed",
        in_edge='<data key="r">100mbit</data><data key="d">0.005</data>',
        more=BACK.format("10mbit"),
    )
    (edge,) = found.edges
    assert (edge.one, edge.there.rate, edge.there.delay) == ("0", 10**8, 0.005)
    assert (edge.other, edge.back.rate, edge.back.delay) == ("1", 10**7, 0.0)


def test_one_edge_may_be_undirected_among_others(tmp_path: Path) -> None:
    found = graphml(tmp_path, edgedefault="directed", flag=' directed="false"')
    assert len(found.edges) == 1 and found.edges[0].there == found.edges[0].back


def test_parallel_undirected_edges_are_links_of_their_own(tmp_path: Path) -> None:
    found = graphml(tmp_path, in_edge='<data key="r">1gbit</data>', more=BACK.format("5mbit"))
    assert [edge.there.rate for edge in found.edges] == [10**9, 5 * 10**6]


def test_what_an_element_does_not_say_is_its_keys_default(tmp_path: Path) -> None:
    found = graphml(tmp_path, default="<default>3mbit</default>", more=BACK.format("5mbit"))
    assert [edge.back.rate for edge in found.edges] == [3 * 10**6, 5 * 10**6]


def test_yeds_labels_are_names(tmp_path: Path) -> None:
    label = (
        '<y:ShapeNode xmlns:y="http://www.yworks.com/xml/graphml"><y:NodeLabel>Hub\n</y:NodeLabel>'
    )
    found = graphml(tmp_path, in_node=f'<data key="y">{label}</y:ShapeNode></data>')
    assert found.routers == ("Hub", "1")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_graphml_is_in_the_encoding_that_it_names(tmp_path: Path, encoding: str) -> None:
    found = graphml(tmp_path, encoding=encoding, in_node='<data key="n">Köln</data>')
    assert found.routers == ("Köln", "1")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"edgedefault": "directed"},
            "has an edge from 0 to 1 and none back, and a link has two directions: add the edge from 1 "
            "to 0, or make the graph undirected",
        ),
        (
            {"edgedefault": "directed", "more": '<edge source="0" target="1"/>' + BACK.format(1e6)},
            "has two edges from 0 to 1, and it is open which edge back belongs to which",
        ),
        ({"edgedefault": "both"}, "has the graph attribute edgedefault='both'"),
        ({"more": '<edge source="1" target="1"/>'}, "has an edge from 1 to itself"),
        ({"more": '<edge source="1"/>'}, "has a edge without 'target'"),
        ({"more": '<node id="0"/>'}, "has 2 nodes with the id '0'"),
        ({"more": "<hyperedge/>"}, "has a hyperedge"),
        ({"in_node": "<graph/>"}, "has a graph inside a node or an edge"),
        ({"after": "<graph/>"}, "has 2 graphs: leave one in it"),
        (
            {"in_edge": '<data key="d">5ms</data>'},
            "gives edge 0 the delay '5ms', which is no double",
        ),
        ({"in_edge": '<data key="z">5ms</data>'}, "data of the key 'z', which it does not declare"),
        (
            {"in_edge": '<data key="r">1</data><data key="r">2</data>'},
            "gives edge 0 the attribute 'rate' twice",
        ),
        (
            {"in_edge": '<data key="r"/>'},
            "gives the edge from 0 to 1 a wrong rate: '' is not a rate",
        ),
        ({"in_edge": '<data key="d">NaN</data>'}, "wrong delay: 'nan s' is not a duration"),
        (
            {"before": '<!DOCTYPE graphml [<!ENTITY a "a"><!ENTITY b "&a;&a;">]>'},
            "declares an XML entity",
        ),
        ({"more": "<"}, "cannot be read as XML: not well-formed"),
    ],
)
def test_graphml_that_cannot_be_built_is_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    with pytest.raises(SpecError) as error:
        graphml(tmp_path, **changes)
    assert f"{tmp_path}/graph.graphml {said}" in str(error.value) or (
        said in str(error.value) and str(tmp_path) in str(error.value)
    )
    assert "\n" not in str(error.value)


TWO = [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}]
ONE: dict[str, Any] = {"source": 0, "target": 1}


def _two(**changes: Any) -> dict[str, Any]:
    return {"nodes": TWO, "edges": [ONE]} | changes


def _edge(**values: Any) -> dict[str, Any]:
    return _two(edges=[ONE | values])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (_two(edges=None), "has 'edges' as null and not as a list"),
        (_two(nodes=None), "has 'nodes' as null and not as a list"),
        (_two(nodes={"0": {}}), "has 'nodes' as {'0': {}} and not as a list"),
        (_two(edges=[[0, 1]]), "has edges[0] as [0, 1] and not as an object"),
        (_two(links=[]), "has both 'edges' and 'links'"),
        (_two(directed="yes"), "has 'directed' as 'yes': write true or false"),
        (_two(directed=True), "has an edge from A to B and none back"),
        (
            _two(edges=[ONE, ONE], multigraph=False),
            "has two edges between '0' and '1' and says that it is no multigraph",
        ),
        (
            _two(edges=[{"source": None, "target": 1}]),
            "has the source of edge 0 as null: write text",
        ),
        (_two(nodes=[{"id": True}]), "has the id of node 0 as true: write text"),
        (_two(nodes=[{"id": 1}, {"id": "1"}]), "has 2 nodes with the id '1'"),
        (_edge(rate=float("nan")), "gives the edge from A to B a wrong rate: 'nan' is not a rate"),
        (_edge(rate=float("inf")), "gives the edge from A to B a wrong rate: 'inf' is not a rate"),
        (_edge(rate=10**40), "gives the edge from A to B a wrong rate"),
        (_edge(rate=True), "gives the edge from A to B a wrong rate: must be a rate"),
        (_edge(rate=-5), "gives the edge from A to B a wrong rate: '-5' is not a rate"),
        (_edge(rate="1\x1b[31m"), "gives the edge from A to B a wrong rate: '1\\x1b[31m'"),
        (_edge(rate=[1]), "gives the edge from A to B a wrong rate: must be a rate"),
        (_edge(delay=float("nan")), "gives the edge from A to B a wrong delay"),
        (_edge(delay=1e10), "gives the edge from A to B a wrong delay"),
        (_edge(delay=-0.1), "gives the edge from A to B a wrong delay"),
        (_edge(dist="12 km"), "a wrong dist: '12 km' is no length: write a number of kilometres"),
        (_edge(dist=-1), "a wrong dist: '-1' is no length"),
        (_edge(dist=float("nan")), "a wrong dist: 'nan' is no length"),
        (_edge(loss=1.0), "gives the edge from A to B a wrong loss"),
        (_edge(loss=float("nan")), "gives the edge from A to B a wrong loss"),
        (_edge(rate=1e6, queue=100), "gives the edge from A to B a wrong queue"),
        (_edge(delay=0.001, jitter=0.002), "gives the edge from A to B more jitter than delay"),
    ],
)
def test_json_that_cannot_be_built_is_refused_in_one_sentence(
    tmp_path: Path, content: dict[str, Any], said: str
) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SpecError) as error:
        graph_source.read(GraphSpec(file=str(path)))
    assert str(error.value).startswith(f"network.graph: {path} ")
    assert said in str(error.value) and str(error.value).isprintable()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read as JSON"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"nodes": [{"id": "\xff"}]}', "it is not in utf-8"),
        (b"[1]", "is no graph: it is not an object with nodes and edges"),
        (b'{"nodes": [{"id": 1, "id": 2}]}', "has an object with the key 'id' twice"),
        (b'{"nodes": [' + b"0," * 2**24 + b"0]}", "has more than 32 MiB"),
        (b'{"nodes": [{"id": ' + b"9" * 5000 + b"}]}", "4300"),
        (b"<xml/>", "is no GraphML"),
        (b'<?xml version="1.0" encoding="klingon"?><graphml/>', "cannot be read as XML"),
        (b"<graphml/>", "has 0 graphs"),
        (
            json.dumps({"nodes": [{"id": i} for i in range(32_769)], "edges": []}).encode(),
            "has 32,769 nodes or edges, and the address plan 32,768 links",
        ),
    ],
    ids=range(11),
)
def test_a_file_that_is_no_graph_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "graph.json"
    path.write_bytes(content)
    with pytest.raises(SpecError) as error:
        graph_source.read(GraphSpec(file=str(path)))
    assert str(error.value).startswith(f"network.graph: {path} ")
    assert said in str(error.value) and "\n" not in str(error.value)


def test_gml_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "graph.gml"
    networkx.write_gml(networkx.path_graph(2), path)
    with pytest.raises(SpecError, match="is GML, which is not read: turn it into GraphML"):
        graph_source.read(GraphSpec(file=str(path)))


def test_a_number_is_in_the_base_unit_and_a_text_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    values = {"rate": 2e6, "delay": 0.25, "jitter": "1ms", "loss": 0.01, "queue": 9000.0}
    path.write_text(json.dumps(_edge(**values)))
    (edge,) = graph_source.read(GraphSpec(file=str(path))).edges
    assert edge.there == edge.back
    shape = edge.there
    assert (shape.rate, shape.delay, shape.jitter) == (2_000_000, 0.25, 0.001)
    assert (shape.loss, shape.queue) == (0.01, 9000) and isinstance(shape.queue, int)


@pytest.mark.parametrize(
    ("name", "router"),
    [
        ("", "0"),
        (None, "0"),
        ("Bad Ems", "Bad-Ems"),
        ("../etc", "etc"),
        ("--help", "help"),
        ("a\x1b[31mb\n", "a-31mb-"),
        ("\ud800", "0"),
        ("ü" * 40, "ü" * 32),
        (7, "7"),
        ({"de": "Köln"}, "0"),
    ],
)
def test_a_name_is_one_that_exec_can_take(tmp_path: Path, name: Any, router: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(_two(nodes=[{"id": 0, "name": name}, {"id": 1, "name": "B"}])))
    assert graph_source.read(GraphSpec(file=str(path))).routers == (router, "B")


@pytest.mark.parametrize(
    "name",
    ["core", "server", "evaluator", "coordinator"]
    + [f"{role}-0" for role in ("server", "worker", "peer", "aggregator", "machine")],
)
def test_a_node_is_not_called_as_what_a_run_has(tmp_path: Path, name: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(_two(nodes=[{"id": 0, "name": name}, {"id": 1}])))
    with pytest.raises(SpecError, match=f"a node called '{name}', as "):
        graph_source.read(GraphSpec(file=str(path)))


@pytest.mark.parametrize("ids", [(1, -1), ("a b", "a-b"), ("", "."), ("x" * 65, "x" * 66)])
def test_nodes_whose_names_would_be_the_same_are_numbered(tmp_path: Path, ids: Any) -> None:
    path = tmp_path / "graph.json"
    nodes = [{"id": one} for one in ids]
    path.write_text(json.dumps(_two(nodes=nodes, edges=[{"source": ids[0], "target": ids[1]}])))
    assert graph_source.read(GraphSpec(file=str(path))).routers == ("node-0", "node-1")


def test_places_that_cannot_be_drawn_are_none(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    for place in ([10**400, 0], [1e308, 0], [True, False], ["1", "2"]):
        path.write_text(json.dumps(_two(nodes=[one | {"pos": place} for one in TWO])))
        assert graph_source.read(GraphSpec(file=str(path))).positions == {}

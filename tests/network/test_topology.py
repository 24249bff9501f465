"""Routes in graphs of routers, compared with networkx's, and who uses a direction of a link."""

import itertools

import networkx  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.network.links import CORE, Link, Shape
from testbed.network.topology import Network, users
from testbed.planning.network_plan import without_shapes

CLUSTERS = Network(
    (
        Link("server", 0),
        Link("worker-0", 1, router="campus"),
        Link("worker-1", 2, router="campus"),
        Link("worker-2", 3, router="village"),
        Link("campus", 4),
        Link("village", 5),
    )
)


def test_in_a_tree_a_route_goes_up_and_down() -> None:
    assert CLUSTERS.routers == (CORE, "campus", "village")
    assert CLUSTERS.devices == ("server", "worker-0", "worker-1", "worker-2")
    assert CLUSTERS.route("worker-0", "server") == ((1, True), (4, True), (0, False))
    assert CLUSTERS.route("server", "worker-2") == ((0, True), (5, False), (3, False))
    assert CLUSTERS.route("worker-0", "worker-1") == ((1, True), (2, False))
    assert CLUSTERS.route("worker-0", "worker-0") == ()
    assert CLUSTERS.path("worker-0", "server") == ("campus", CORE)
    assert CLUSTERS.path("server", "worker-2") == (CORE, "village")
    assert CLUSTERS.path("worker-0", "worker-1") == ("campus",)
    hops = {own.node: first.index for own, first in CLUSTERS.next_links(CORE)}
    assert hops == {"worker-0": 4, "worker-1": 4, "worker-2": 5}
    assert {first.index for _, first in CLUSTERS.next_links("campus")} == {4}


def test_the_users_of_a_direction_are_the_conversations_that_pass_it() -> None:
    found = users(CLUSTERS, [(f"worker-{i}", "server") for i in range(3)])
    assert {direction: pairs for direction, pairs in found.items() if direction[0] in (0, 4)} == {
        (4, True): [("worker-0", "server"), ("worker-1", "server")],
        (4, False): [("server", "worker-0"), ("server", "worker-1")],
        (0, False): [(f"worker-{i}", "server") for i in range(3)],
        (0, True): [("server", f"worker-{i}") for i in range(3)],
    }


def test_a_router_without_a_way_to_the_core_is_refused() -> None:
    with pytest.raises(ValueError, match="no route leads from core to village"):
        Network((Link("server", 0), Link("worker-0", 1, router="village")))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Routers in a tree with further links between them, and a device at each."""
    count = draw(st.integers(1, 6))
    names = [CORE, *(f"router-{i}" for i in range(1, count))]
    delays = st.sampled_from([0.0, 0.001, 0.002, 0.004])
    ends = [(names[i], names[draw(st.integers(0, i - 1))]) for i in range(1, count)]
    others = list(itertools.combinations(reversed(names), 2))
    ends += draw(st.lists(st.sampled_from(others), max_size=5)) if others else []
    links = [Link(f"device-{i}", i, router=name) for i, name in enumerate(names)]
    links += [
        Link(one, count + i, Shape(None, draw(delays)), Shape(None, draw(delays)), other)
        for i, (one, other) in enumerate(ends)
    ]
    return Network(tuple(links))


@given(networks())
def test_routes_are_the_shortest_paths(network: Network) -> None:
    graph = networkx.MultiDiGraph()
    graph.add_nodes_from(network.routers)
    for link in network.links:
        if link.node in network.routers:
            graph.add_edge(link.node, link.router, delay=link.uplink.delay)
            graph.add_edge(link.router, link.node, delay=link.downlink.delay)
    for one, other in itertools.permutations(network.devices, 2):
        first, *between, last = network.route(one, other)
        assert (first, last) == (
            (network.link(one).index, True),
            (network.link(other).index, False),
        )
        at = network.link(one).router
        for index, up in between:
            link = network.links_by_index[index]
            assert at == (link.node if up else link.router)
            at = link.router if up else link.node
        assert at == network.link(other).router
        delay = sum(network.shape(direction).delay for direction in between)
        ends = network.link(one).router, at
        assert delay == pytest.approx(networkx.dijkstra_path_length(graph, *ends, "delay"))


@given(networks())
def test_without_shapes_routes_are_the_same(network: Network) -> None:
    """Under the virtual clock the kernel routes as the clock does."""
    bare = without_shapes(network)
    assert not any(link.uplink.shapes or link.downlink.shapes for link in bare.links)
    for one, other in itertools.permutations(network.devices, 2):
        assert bare.route(one, other) == network.route(one, other)


@given(networks())
def test_what_each_router_knows_makes_up_the_routes(network: Network) -> None:
    """A packet that every router sends over its next link takes the route, and never a circle."""
    for one, other in itertools.permutations(network.devices, 2):
        at, taken = network.link(one).router, []
        while at != network.link(other).router:
            hops = {own.node: first for own, first in network.next_links(at)}
            link = hops[other]
            up = link.node == at
            taken.append((link.index, up))
            at = link.router if up else link.node
            assert len(taken) < len(network.links)
        assert tuple(taken) == network.route(one, other)[1:-1]

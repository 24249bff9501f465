"""Make the network of a run: its devices, its routers, and the links between them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from testbed.algorithms import has
from testbed.device_names import (
    EVALUATOR_NAME,
    aggregator_name,
    is_peer,
    is_server,
    machine_name,
    peer_name,
    server_names,
    worker_name,
)
from testbed.errors import SpecError
from testbed.experiment.device_links import link_shapes
from testbed.experiment.load import AnySpec
from testbed.experiment.sections.graph import GraphSpec
from testbed.experiment.sections.programs import NodeSpec
from testbed.experiment.sections.shared_links import (
    SharedLinkSpec,
    around,
    cluster_of,
    inhabited,
)
from testbed.experiment.spec import Spec
from testbed.network.background import BackgroundFlow
from testbed.network.links import CORE, MOST_LINKS, Link, Shape
from testbed.network.topology import Direction, Network, users
from testbed.planning import graph_source
from testbed.random_streams import stream
from testbed.training.run_devices import Route


def network_of(spec: Spec, *, served: bool, class_of: Sequence[int]) -> Network:
    """Return the network of a run with one algorithm; see ``machines_of``."""
    return machines_of(spec, served=served, class_of=class_of, aggregated=aggregated(spec))


def machines_of(
    spec: AnySpec,
    *,
    served: bool,
    class_of: Sequence[int],
    aggregated: bool = False,
    evaluated: bool = True,
    nodes: Sequence[NodeSpec] = (),
) -> Network:
    """Return the network of a run's machines.

    The (first) server's link has index 0, the evaluator's 1; after them are the workers' or peers',
    those of the other servers, those of machines with a co-located server, those of further nodes,
    those of the clusters' routers, and those of the aggregators beside them, which are not shaped. A
    machine has the link of its worker, and is the router of both. A simulation has at most as many
    devices as the address plan.

    Args:
        class_of: the class of each worker or peer; empty without classes.
        aggregated: True if there is an aggregator in each cluster.
    """
    count, clusters = spec.devices.workers, spec.network.clusters
    classes = {one.name: number for number, one in enumerate(spec.devices.classes)}
    cluster = cluster_of(clusters, count, class_of, classes)
    own = [spec.link_of(device_class) for device_class in spec.devices.classes or (None,)]
    # The evaluator's link is not shaped: it measures and is no part of what is measured.
    first, *others = server_names(spec.devices.servers)
    of_server = _shared_shapes(spec.network.server)
    machines = [machine_name(i) for i in range(spec.devices.co_located)] if served else []
    of_device = [  # what worker or peer i would be linked by alone
        Link(
            "",
            0,
            *own[class_of[i] if class_of else 0].first_shapes(i, count),
            router=clusters[cluster[i]].name if cluster else CORE,
        )
        for i in range(count if spec.engine == "emulation" else min(count, MOST_LINKS - 2))
    ]
    at = dict(enumerate(machines))
    links = [Link(first, 0, *of_server, router=at.get(0, CORE))] if served else []
    links += [Link(EVALUATOR_NAME, 1)] if evaluated else []
    name = worker_name if served else peer_name
    before = 2 + count
    links += [
        Link(name(i), 2 + i, router=at[i]) if i in at else replace(one, node=name(i), index=2 + i)
        for i, one in enumerate(of_device)
    ]
    links += [
        Link(other, before + i, *of_server, router=at.get(1 + i, CORE))
        for i, other in enumerate(others)
    ]
    before += len(others)
    links += [replace(of_device[i], node=one, index=before + i) for i, one in at.items()]
    before += len(at)
    links += [Link(one.name, before + i, *_shared_shapes(one)) for i, one in enumerate(nodes)]
    before += len(nodes)
    if spec.network.graph is not None:
        return _attached(spec, spec.network.graph, links, machines)
    homes = inhabited(clusters, cluster)
    links += [
        Link(one.name, before + i, *_shared_shapes(one), router=one.inside or CORE)
        for i, one in enumerate(clusters)
        if i in homes
    ]
    if aggregated:
        before += len(clusters)
        links += [
            Link(aggregator_name(index), before + index, router=clusters[home].name)
            for index, home in enumerate(homes)
        ]
    return Network(tuple(links))


def aggregated(spec: Spec) -> bool:
    """Return True if the run of a spec with one algorithm has aggregators."""
    return has(spec.algorithms[0].name, "aggregator")


def aggregator_of(spec: Spec, class_of: Sequence[int]) -> list[int]:
    """Return the aggregator of each worker, and then of each aggregator; -1: it talks to the server.

    The list is empty without aggregators. These are numbered as ``inhabited`` lists their clusters.

    Args:
        class_of: the class of each worker; empty without classes.
    """
    if not aggregated(spec):
        return []
    classes = {one.name: number for number, one in enumerate(spec.devices.classes)}
    clusters = spec.network.clusters
    cluster = cluster_of(clusters, spec.devices.workers, class_of, classes)
    homes = inhabited(clusters, cluster)
    index: dict[int | None, int] = {home: index for index, home in enumerate(homes)}
    outer = (around(clusters, home) for home in homes)
    return [index.get(home, -1) for home in (*cluster, *outer)]


def _attached(
    spec: AnySpec,
    section: GraphSpec,
    links: Sequence[Link],
    machines: Sequence[str],
) -> Network:
    """Return the network in which devices are attached to a graph of routers.

    The core is beside the server's router: their link has no rate and no delay.

    Args:
        links: as in a star; the first two are the server's or an evaluator's.
        machines: those with a co-located server, which are attached instead of their devices.
    """
    graph = graph_source.read(section)
    if spec.clock == "virtual":
        for edge in graph.edges:
            if any(one.loss or one.queue is not None for one in (edge.there, edge.back)):
                raise SpecError(
                    "network.graph: under the virtual clock nothing is lost and no queue is full: take "
                    f"loss and queue out (the link {edge.one} to {edge.other} has one), or use `clock: "
                    "wall`"
                )
    inside = {link.index for link in links if link.router in machines}
    devices = [link for link in links if link.index >= 2 and link.index not in inside]
    first = max(link.index for link in links) + 1
    between = [
        Link(edge.one, first + i, edge.there, edge.back, router=edge.other)
        for i, edge in enumerate(graph.edges)
    ]
    places = range(len(graph.routers))
    if section.attach == "in-turn":
        chosen = [i % len(places) for i in range(len(devices))]
    else:
        drawn = stream(spec.seed, "attachment").integers(len(places), size=len(devices))
        chosen = [int(one) for one in drawn]
    server = section.server or _centre(graph)
    if server not in graph.routers:
        known = ", ".join(graph.routers[:5])
        raise SpecError(
            f"network.graph.server: there is no node '{server}' in {section.source}: it has {known}, …"
        )
    attached = [
        replace(link, router=graph.routers[place])
        for link, place in zip(devices, chosen, strict=True)
    ]
    others = [link for link in links if link.index < 2 or link.index in inside]
    to_core = Link(server, first + len(between))
    return Network((*others, *attached, *between, to_core), graph.routers)


def _centre(graph: graph_source.RouterGraph) -> str:
    """Return the router with the shortest ways to all others, by delay, and of several the first."""
    links = [Link(e.one, i, e.there, e.back, e.other) for i, e in enumerate(graph.edges)]
    # Any router may be beside the core here: that link has no length.
    network = Network((*links, Link(graph.routers[0], len(links))), graph.routers)
    return min(
        graph.routers, key=lambda one: sum(network.delay(one, other) for other in graph.routers)
    )


def without_shapes(network: Network) -> Network:
    """Return a network whose links are not shaped, with the same routes."""
    links = (replace(link, uplink=Shape(), downlink=Shape()) for link in network.links)
    delays = ((link.uplink.delay, link.downlink.delay) for link in network.links)
    return Network(tuple(links), network.others, tuple(delays))


def shared_directions(
    network: Network, conversations: Sequence[tuple[str, str]]
) -> dict[Direction, list[tuple[str, str]]]:
    """Return the directions of links that several conversations share, with the pairs that use them.

    These are the links of servers and of routers and, with several servers or none, those of workers or
    peers, where they are shaped.

    Args:
        conversations: the pairs of devices that talk to each other, a worker first.
    """
    servers = {called for _, called in conversations if is_server(called)}
    shared = {*network.routers, *servers}
    if len(servers) != 1:
        shared |= {device for pair in conversations for device in pair}
    return {
        direction: pairs
        for direction, pairs in users(network, conversations).items()
        if network.links_by_index[direction[0]].node in shared and network.shape(direction).shapes
    }


class SharedRoutes(NamedTuple):
    """Ways over links that devices share; see ``NetworkSettings``, which has these fields."""

    shared_rates: Sequence[int]
    routes: Sequence[Route]
    route_of: Sequence[int]
    flow_routes: Sequence[Sequence[int]]


def shared_routes(
    network: Network,
    conversations: Sequence[tuple[str, str]],
    flows: Sequence[BackgroundFlow] = (),
) -> SharedRoutes:
    """Return the ways of conversations and of background flows over shared links.

    Args:
        network: with links as in the file.
        conversations: pairs of devices, in the order of their numbers; a worker comes first. Workers'
            and peers' own links are no part of the ways.
    """
    rates: list[int] = []
    numbers: dict[Direction, int] = {}
    routes: list[Route] = []
    ways: dict[tuple[str, str], int] = {}
    route_of: list[int] = []

    def limited(directions: Sequence[Direction]) -> list[int]:
        found = []
        for direction in directions:
            rate = network.shape(direction).rate
            if rate is None:
                continue
            if direction not in numbers:
                numbers[direction] = len(rates)
                rates.append(rate)
            found.append(numbers[direction])
        return found

    for one, other in conversations:
        last = 1 if is_peer(other) else 0  # links of their own at the other end
        way = network.link(one).router, network.link(other).router if last else other
        if way not in ways:
            ways[way] = len(routes)
            there, back = network.route(one, other), network.route(other, one)
            both = there[1 : len(there) - last], back[last:-1]
            up_delay, down_delay = (
                sum(network.shape(passed).delay for passed in over) for over in both
            )
            jitters = [
                [jitter for passed in over if (jitter := network.shape(passed).jitter)]
                for over in both
            ]
            up, down = map(limited, both)
            routes.append(Route(up, down, up_delay, down_delay, *jitters))
        route_of.append(ways[way])
    flow_routes = []
    for flow in flows:
        passed = network.route(flow.sender, flow.receiver)
        first, last = (not is_server(one) for one in (flow.sender, flow.receiver))
        flow_routes.append(limited(passed[first : len(passed) - last]))
    return SharedRoutes(rates, routes, route_of, flow_routes)


def _shared_shapes(section: SharedLinkSpec | None) -> tuple[Shape, Shape]:
    return link_shapes(*([] if section is None else [section]))

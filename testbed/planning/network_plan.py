"""Make the network of a run: its devices, its routers, and the links between them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from testbed.device_names import EVALUATOR_NAME, SERVER_NAME, peer_name, worker_name
from testbed.errors import SpecError
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.graph import GraphSpec
from testbed.experiment.sections.shared_links import SharedLinkSpec, cluster_of
from testbed.experiment.spec import Spec
from testbed.network.graph import Direction, Network, users
from testbed.network.links import CORE, MOST_LINKS, Link, Shape
from testbed.planning import graph_source
from testbed.streams import stream
from testbed.training.settings import Route


def network_of(spec: Spec, *, served: bool, class_of: Sequence[int]) -> Network:
    """Return the network of a run with one algorithm.

    The server's link has index 0, the evaluator's 1; the workers' or peers' are after them, and then
    those of the clusters' routers. A simulation has at most as many devices as the address plan.

    Args:
        served: True if there is a server.
        class_of: the class of each worker or peer; empty without classes.
    """
    count, clusters = spec.devices.workers, spec.network.clusters
    classes = {one.name: number for number, one in enumerate(spec.devices.classes)}
    cluster = cluster_of(clusters, count, class_of, classes)
    shapes = [_shapes(spec, device_class) for device_class in spec.devices.classes or (None,)]
    # The evaluator's link is not shaped: it measures and is no part of what is measured.
    links = [Link(SERVER_NAME, 0, *_shared_shapes(spec.network.server))] if served else []
    links.append(Link(EVALUATOR_NAME, 1))
    name = worker_name if served else peer_name
    links += [
        Link(
            *(name(i), 2 + i, *shapes[class_of[i] if class_of else 0]),
            router=clusters[cluster[i]].name if cluster else CORE,
        )
        for i in range(count if spec.engine == "emulation" else min(count, MOST_LINKS - 2))
    ]
    if spec.network.graph is not None:
        return _attached(spec, spec.network.graph, links)
    links += [
        Link(one.name, 2 + count + i, *_shared_shapes(one))
        for i, one in enumerate(clusters)
        if i in cluster  # few devices may leave a small share without any
    ]
    return Network(tuple(links))


def _attached(
    spec: Spec,
    section: GraphSpec,
    links: Sequence[Link],
) -> Network:
    """Return the network in which devices are attached to a graph of routers.

    The core is beside the server's router: their link has no rate and no delay.

    Args:
        links: as in a star; the first two are the server's or an evaluator's.
    """
    graph = graph_source.read(section)
    taken = {link.node for link in links}
    for router in graph.routers:
        if router in taken:
            raise SpecError(
                f"network.graph: the node '{router}' is called as a device is: rename it"
            )
    devices = [link for link in links if link.index >= 2]
    first = max(link.index for link in links) + 1
    between = [
        Link(edge.one, first + i, edge.shape, edge.shape, router=edge.other)
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
    others = [link for link in links if link.index < 2]
    to_core = Link(server, first + len(between))
    return Network((*others, *attached, *between, to_core), graph.routers)


def _centre(graph: graph_source.Graph) -> str:
    """Return the router with the shortest ways to all others, by delay, and of several the first."""
    links = [Link(e.one, i, e.shape, e.shape, e.other) for i, e in enumerate(graph.edges)]
    # Any router may be beside the core here: that link has no length.
    network = Network((*links, Link(graph.routers[0], len(links))), graph.routers)
    return min(
        graph.routers, key=lambda one: sum(network.delay(one, other) for other in graph.routers)
    )


def without_shapes(network: Network) -> Network:
    """Return a network whose links have no rate, delay or loss."""
    links = (replace(link, uplink=Shape(), downlink=Shape()) for link in network.links)
    return Network(tuple(links), network.others)


def shared_directions(
    network: Network, conversations: Sequence[tuple[str, str]]
) -> dict[Direction, list[tuple[str, str]]]:
    """Return the directions of links that several devices share, with the pairs that use them.

    These are the links of the server and of routers, where they are shaped.

    Args:
        conversations: the pairs of devices that talk to each other.
    """
    shared = {*network.routers, SERVER_NAME}
    return {
        direction: pairs
        for direction, pairs in users(network, conversations).items()
        if network.links_by_index[direction[0]].node in shared and network.shape(direction).shapes
    }


def shared_routes(network: Network, workers: Sequence[str]) -> dict[str, Any]:
    """Return the ways of workers to the server over shared links, as fields of ``NetworkSettings``.

    Args:
        network: with links as in the file.
    """
    rates: list[int] = []
    numbers: dict[Direction, int] = {}
    routes: list[Route] = []
    by_router: dict[str, int] = {}

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

    for worker in workers:
        router = network.link(worker).router
        if router in by_router:
            continue
        by_router[router] = len(routes)
        up, down = network.route(worker, SERVER_NAME)[1:], network.route(SERVER_NAME, worker)[:-1]
        delays = [sum(network.shape(direction).delay for direction in way) for way in (up, down)]
        routes.append(Route(limited(up), limited(down), *delays))
    return {
        "shared_rates": rates,
        "routes": routes,
        "route_of": [by_router[network.link(worker).router] for worker in workers],
    }


def _shared_shapes(section: SharedLinkSpec | None) -> tuple[Shape, Shape]:
    """Return uplink and downlink of a link that devices share."""
    if section is None:
        return Shape(), Shape()
    return Shape(section.uplink, section.delay, section.loss), Shape(section.downlink)


def _shapes(spec: Spec, section: DeviceClassSpec | None) -> tuple[Shape, Shape]:
    """Return uplink and downlink of a class's devices; of all devices without classes."""
    uplink, downlink, delay, loss = (
        getattr(spec.network, key)
        if section is None
        else section.of(key, getattr(spec.network, key))
        for key in ("uplink", "downlink", "delay", "loss")
    )
    return Shape(uplink, delay, loss), Shape(downlink)

"""Links that cross from one host to another: two namespaces that an underlay of 1,500 bytes joins."""

import socket
import threading
import time

import pytest
from pyroute2 import IPRoute

from testbed.network import building, outages
from testbed.network.building import Queues
from testbed.network.links import CORE, Link, Shape
from testbed.network.shaping import COUNTED
from testbed.network.topology import Network
from testbed.network.underlay import INNER_MTU, Underlay
from testbed.nodes.linux import inside_network, new_network, own_network
from tests.traffic.isolation import isolated, real
from traffic.counters import Meter

pytestmark = pytest.mark.exercises("namespaces")
ADDRESSES = ("192.168.77.1", "192.168.77.2")
FIRST = 7_000_000
SIZE = 1_500_000


def joined_hosts() -> list[int]:
    """Return the network namespaces of two hosts that can reach each other."""
    hosts = [new_network(), new_network()]
    with inside_network(hosts[0]), IPRoute() as netlink:
        netlink.link("add", ifname="up", kind="veth", peer={"ifname": "up", "net_ns_fd": hosts[1]})
    for host, address in zip(hosts, ADDRESSES, strict=True):
        with inside_network(host), IPRoute() as netlink:
            (index,) = netlink.link_lookup(ifname="up")
            netlink.addr("add", index=index, address=address, prefixlen=24)
            netlink.link("set", index=index, state="up", mtu=1500)
    return hosts


def built(network: Network, place: dict[str, int]) -> dict[str, int]:
    """Build a network on as many hosts as ``place`` has; return the namespaces of its nodes.

    Args:
        place: the index of the host of each node.
    """
    hosts = joined_hosts() if 1 in place.values() else [own_network()]
    nodes = {node: new_network() for node in place}
    for number, host in enumerate(hosts):
        elsewhere = {node: ADDRESSES[at] for node, at in place.items() if at != number}
        underlay = Underlay(host, ADDRESSES[number], elsewhere, FIRST)
        own = {node: nodes[node] for node in place if node not in elsewhere}
        # The namespace that builds is the core; on a host without it, it stays empty.
        with inside_network(own.pop(CORE) if CORE in own else new_network()):
            building.build(network, own, Queues(counted=["server"]), underlay=underlay)
    return nodes


def carried(source: int, target: int, address: str) -> float:
    """Send ``SIZE`` bytes over a TCP connection between namespaces; return the seconds that it took."""
    with inside_network(target):
        listener = socket.create_server((address, 0))
    received = []

    def receive() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(65_536):
                received.append(len(data))

    reader = threading.Thread(target=receive)
    reader.start()
    began = time.monotonic()
    with inside_network(source):
        sender = socket.create_connection(listener.getsockname(), 10)
    sender.sendall(bytes(SIZE))
    sender.close()
    reader.join(30)
    listener.close()
    assert sum(received) == SIZE
    return time.monotonic() - began


def ingress_of_server(nodes: dict[str, int], network: Network) -> int:
    """Return the bytes of frames that the class at the server's link has counted."""
    with inside_network(nodes[CORE]):
        meter = Meter(building.DEVICE_INDEX + network.link("server").index, COUNTED)
        return int(meter.read().class_bytes)


STAR = Network(
    (
        Link("server", 0),
        Link("worker-0", 1, Shape(20_000_000), Shape(40_000_000)),
        Link("worker-1", 2, Shape(20_000_000), Shape(40_000_000)),
    )
)
TREE = Network(
    (
        Link("server", 0),
        Link("worker-0", 1, Shape(20_000_000), router="region-0"),
        Link("worker-1", 2, router="region-0"),
        Link("region-0", 3, Shape(30_000_000), Shape(30_000_000)),
    )
)


@real
@pytest.mark.parametrize(
    ("network", "apart"),
    [(STAR, ("worker-0",)), (STAR, ("worker-0", "worker-1")), (TREE, ("region-0", "worker-0"))],
    ids=["one worker", "all workers", "a region with one of its workers"],
)
def test_links_between_hosts_carry_what_links_of_one_host_do(
    network: Network, apart: tuple[str, ...]
) -> None:
    def body() -> None:
        one_host = dict.fromkeys((*network.devices, *network.routers), 0)
        found = []
        for place in (one_host, one_host | dict.fromkeys(apart, 1)):
            nodes = built(network, place)
            server = network.link("server").address
            up = [carried(nodes[one], nodes["server"], server) for one in ("worker-0", "worker-1")]
            ingress = ingress_of_server(nodes, network)
            down = carried(nodes["server"], nodes["worker-0"], network.link("worker-0").address)
            found.append((ingress, *up, down))
        (alone, *_), (apart_ingress, first, *_, down) = found
        # Acknowledgements merge differently; what is shaped takes as long, at 20 Mbit/s. Segments that
        # were cut to what fits into one packet of the underlay would have 0.2 % more headers.
        assert apart_ingress == pytest.approx(alone, rel=0.001)
        assert 8 * SIZE / 20e6 * 0.95 < first < 8 * SIZE / 20e6 * 1.5
        if network is STAR:
            assert 8 * SIZE / 40e6 * 0.95 < down < 8 * SIZE / 40e6 * 1.5

    isolated(body)


@real
def test_a_link_between_hosts_that_was_down_carries_what_it_did_before() -> None:
    def body() -> None:
        nodes = built(STAR, {**dict.fromkeys((*STAR.devices, CORE), 0), "worker-0": 1})
        server, device = STAR.link("server").address, nodes["worker-0"]
        carried(device, nodes["server"], server)
        before = ingress_of_server(nodes, STAR)
        for up in (False, True):
            with inside_network(nodes[CORE]):
                outages.set_link(STAR.link("worker-0"), up=up, mtu=INNER_MTU)
            with inside_network(device), IPRoute() as netlink:
                outages.set_carrier(there=up)
                (interface,) = netlink.link("get", index=building.DEVICE_INDEX)
                assert interface.get("carrier") == up
        carried(device, nodes["server"], server)
        assert ingress_of_server(nodes, STAR) == pytest.approx(2 * before, rel=0.001)

    isolated(body)

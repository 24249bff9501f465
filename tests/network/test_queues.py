"""The length of a link's queue on a real link: what has room arrives, what has not is dropped."""

import os
import socket
from pathlib import Path

import pytest

from testbed.network import building
from testbed.network.building import NO_QUEUES, Queues
from testbed.network.links import CORE, Link, Shape
from testbed.network.probe import probe
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network, new_network, own_network
from tests.traffic.isolation import isolated, real

RATE, FRAME, COUNT = 1_000_000, 1442, 300
pytestmark = pytest.mark.exercises("namespaces")
SHARED = Queues(
    fair={(0, True): [("device-0", "device-1")], (0, False): [("device-1", "device-0")]}
)


def sent(source: int, target: int, address: str) -> int:
    """Send datagrams, as fast as possible, to an address of another namespace; count the arrivals."""
    with inside_network(target):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside_network(source):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.bind((address, 0))
        receiver.settimeout(1.0)
        for _ in range(COUNT):
            sender.sendto(bytes(FRAME - 42), receiver.getsockname())
        arrived = 0
        try:
            while True:
                receiver.recv(2048)
                arrived += 1
        except TimeoutError:
            return arrived


@real
@pytest.mark.parametrize(
    "queues", [NO_QUEUES, Queues(counted=["device-0"]), SHARED], ids=["plain", "counted", "shared"]
)
def test_a_queue_drops_what_it_has_no_room_for(queues: Queues) -> None:
    def body() -> None:
        up, down = Shape(RATE, queue=30 * FRAME), Shape(RATE, queue=60 * FRAME)
        links = (Link("device-0", 0, up, down), Link("device-1", 1))
        namespaces = {link.node: new_network() for link in links}
        building.build(Network(links), namespaces, queues)
        here, there = namespaces["device-0"], namespaces["device-1"]
        # Links that were just set up may lose the first packets.
        sent(here, there, links[1].address)
        sent(there, here, links[0].address)
        # Two frames more pass at once, or eleven of a class of fair queues, and some while others are
        # sent: 12 ms each.
        assert 32 <= sent(here, there, links[1].address) < 55
        assert 62 <= sent(there, here, links[0].address) < 85

    isolated(body)


@real
def test_a_probe_finds_links_with_queues_as_asked() -> None:
    def body() -> None:
        shapes = [(Shape(10_000_000, queue=64_000), Shape(100_000_000, queue=200_000))]
        shapes += [(Shape(1_000_000, queue=9_000), Shape(500_000, queue=3_028))]
        links = [Link(f"worker-{i}", i, *shape) for i, shape in enumerate(shapes)]
        namespaces = {link.node: new_network() for link in links}
        building.build(Network(tuple(links)), namespaces)
        places = {CORE: own_network(), **namespaces}

        def good() -> bool:
            found = probe(links, places, lambda: False)
            return len(found) == 4 and all(
                one.measured is not None and not one.off and one.measured.lost == 0 for one in found
            )

        assert any(good() for _ in range(5))

    isolated(body)


STEERING = Path("/proc/sys/net/core/rps_default_mask")


@real
@pytest.mark.skipif(not STEERING.exists(), reason="a kernel before 6.3")
@pytest.mark.parametrize("queue", [None, 100_000])
def test_one_processor_handles_a_connection_where_super_frames_are_split(queue: int | None) -> None:
    def body() -> None:
        links = (Link("device-0", 0, Shape(RATE, queue=queue)), Link("device-1", 1))
        namespaces = {link.node: new_network() for link in links}
        building.build(Network(links), namespaces, NO_QUEUES)
        processors = sum(1 << number for number in os.sched_getaffinity(0))
        for namespace in (own_network(), *namespaces.values()):
            with inside_network(namespace):
                mask = int(STEERING.read_text().replace(",", ""), 16)
                assert mask == (processors if queue else 0)

    isolated(body)

"""Fair queues on a real link."""

import contextlib
import selectors
import socket
import time
from collections.abc import Mapping, Sequence

import pytest
from pyroute2 import IPRoute

from testbed.network import building
from testbed.network.building import Queues
from testbed.network.fair_queues import (
    FIRST,
    FairEgress,
    most_pairs,
    packed_fair_egress,
    super_frame,
)
from testbed.network.links import MOST_PAIRS, Link, Shape
from testbed.network.netlink import Requests
from testbed.network.shaping import UNCOUNTED
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network, new_network
from tests.traffic.isolation import isolated, real

RATE = 50_000_000
PORT = 7077
pytestmark = pytest.mark.exercises("namespaces")


def received(connections: Sequence[tuple[socket.socket, socket.socket]]) -> list[int]:
    """Send as much as possible over all connections; return the bytes of each in 0.5 s."""
    data, buffer = bytes(1 << 20), bytearray(1 << 20)
    bytes_of = [0] * len(connections)
    counted = 0.0
    with selectors.DefaultSelector() as selector:
        for number, (sender, receiver) in enumerate(connections):
            sender.setblocking(False)
            selector.register(sender, selectors.EVENT_WRITE, number)
            selector.register(receiver, selectors.EVENT_READ, number)
        began = time.monotonic()
        while (now := time.monotonic() - began) < 0.8:
            if now > 0.3 and not counted:
                counted, bytes_of = now, [0] * len(connections)
            for key, events in selector.select(0.1):
                if events & selectors.EVENT_READ:
                    bytes_of[key.data] += connections[key.data][1].recv_into(buffer)
                else:
                    with contextlib.suppress(BlockingIOError):
                        connections[key.data][0].send(data)
    assert counted
    return bytes_of


@pytest.mark.parametrize(
    ("rate", "most"),
    [
        (RATE, 16_000),
        (100_000_000, 16_000),
        (200_000_000, 32_000),
        (10**10, 65_536),
        (None, 65_536),
    ],
)
def test_super_frames_are_as_large_as_a_fast_link_allows(rate: int | None, most: int) -> None:
    """None is larger than the kernel's limit."""
    assert super_frame(rate) == most


@real
def test_pairs_of_addresses_have_equal_shares_whatever_their_connections() -> None:
    """One device with three connections gets as much as another one with one."""

    def body() -> None:
        links = (
            Link("device-0", 0, downlink=Shape(RATE)),
            Link("device-1", 1),
            Link("device-2", 2),
        )
        namespaces = {link.node: new_network() for link in links}
        receiver = links[0].address
        pairs = [("device-1", "device-0"), ("device-2", "device-0")]
        building.build(Network(links), namespaces, Queues(fair={(0, False): pairs}))
        for namespace in namespaces.values():
            with inside_network(namespace), IPRoute() as netlink:
                (interface,) = netlink.get_links(building.DEVICE_INDEX)
                assert interface.get_attr("IFLA_GSO_MAX_SIZE") == super_frame(RATE)
        with inside_network(namespaces["device-0"]):
            listener = socket.create_server((receiver, PORT))

        def good() -> bool:
            connections = []
            for device in (1, 1, 1, 2):
                with inside_network(namespaces[f"device-{device}"]):
                    sender = socket.create_connection((receiver, PORT), 10)
                connections.append((sender, listener.accept()[0]))
            got = received(connections)
            for ends in connections:
                for end in ends:
                    end.close()
            first, second = sum(got[:3]), got[3]
            whole = 8 * (first + second) / 0.5 / RATE
            return 0.8 < first / second < 1.25 and 0.8 < whole < 1.05

        assert any(good() for _ in range(5))

    isolated(body)


@real
@pytest.mark.parametrize("packed", [True, False])
def test_a_rate_that_changes_holds_for_all_pairs_together(packed: bool) -> None:
    """A lower rate is not passed by what each pair was given before, and a higher one is reached."""

    def body() -> None:
        links = (Link("sender", 0, uplink=Shape(RATE)), Link("one", 1), Link("other", 2))
        namespaces = {link.node: new_network() for link in links}
        pairs = [("sender", "one"), ("sender", "other")]
        building.build(Network(links), namespaces, Queues(fair={(0, True): pairs}))
        egress = FairEgress(building.DEVICE_INDEX, links[0].uplink, len(pairs))
        for rate in (RATE // 10, 2 * RATE):
            with inside_network(namespaces["sender"]):
                if packed:
                    with contextlib.closing(Requests()) as requests:
                        egress.add_rate(requests, rate)
                        requests.carry_out()
                else:
                    with IPRoute() as netlink:
                        egress.change(netlink, Shape(rate))
            assert egress.shape == Shape(rate)
            assert any(0.8 < share(namespaces, links) / rate < 1.1 for _ in range(5))

    isolated(body)


def share(namespaces: Mapping[str, int], links: Sequence[Link]) -> float:
    """Return the bit/s that arrive from the first device at the others together."""
    connections = []
    for link in links[1:]:
        with inside_network(namespaces[link.node]):
            listener = socket.create_server((link.address, PORT))
        with inside_network(namespaces[links[0].node]):
            sender = socket.create_connection((link.address, PORT), 10)
        connections.append((sender, listener.accept()[0]))
        listener.close()
    got = received(connections)
    for ends in connections:
        for end in ends:
            end.close()
    return 8 * sum(got) / 0.5


@real
@pytest.mark.parametrize("up", [True, False])
def test_each_of_hundreds_of_pairs_has_a_class_of_its_own(up: bool) -> None:
    """Some are in one bucket of the hash table, whichever address it is looked up by."""

    def body() -> None:
        count = 300
        links = [Link("device-0", 0, Shape(RATE), Shape(RATE)), Link("apart", 1)]
        links += [Link(f"device-{i}", i + 1) for i in range(1, count + 1)]
        namespaces = {link.node: new_network() for link in links}
        others = [link.node for link in links[2:]]
        pairs = [("device-0", one) if up else (one, "device-0") for one in others]
        queues = Queues(apart=["apart"], fair={(0, up): pairs[:-1]})
        building.build(Network(tuple(links)), namespaces, queues)
        address = {link.node: link.address for link in links}
        for number, one in enumerate(["apart", *others]):
            sender, receiver = ("device-0", one) if up else (one, "device-0")
            with (
                inside_network(namespaces[sender]),
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
            ):
                for _ in range(1 + number % 3):
                    datagrams.sendto(bytes(10), (address[receiver], 9))
        place = inside_network(namespaces["device-0"]) if up else contextlib.nullcontext()
        with place, IPRoute() as netlink:
            passed = {
                one["handle"]: one.get_attr("TCA_STATS2").get_attr("TCA_STATS_BASIC")["packets"]
                for one in netlink.get_classes(index=building.DEVICE_INDEX)
            }
        expected = {FIRST + number: 1 + number % 3 for number in range(1, count)}
        expected |= {FIRST: 1 + count % 3, UNCOUNTED: 1}
        assert {key: passed[key] for key in expected} == expected

    isolated(body)


def test_more_pairs_than_there_are_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="4,096 pairs share a link: 4,095 at most can"):
        packed_fair_egress(Shape(RATE), [("10.0.0.1", "10.0.0.2")] * (MOST_PAIRS + 1))


@real
@pytest.mark.parametrize("rate", [1_500, 20_000, 1_000_000, 2**63 - 1])
def test_a_direction_is_shared_by_as_many_pairs_as_its_rate_has_room_for(rate: int) -> None:
    def body() -> None:
        pairs = [(f"10.77.{i >> 8}.{i & 255}", "10.77.255.1") for i in range(most_pairs(rate))]
        assert pairs
        with contextlib.closing(Requests()) as requests:
            requests.shape(1, packed_fair_egress(Shape(rate), pairs))  # 1: the loopback here
            requests.carry_out()

    isolated(body)

"""Counting both directions of every link, with real links and TCP."""

import contextlib
import socket
import time

import numpy as np
import numpy.typing as npt

from testbed.network import building
from testbed.network.links import Link, Shape
from testbed.network.segments import HEADERS, wire_bytes
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network, new_network, own_network
from testbed.orchestrator.agent.link_counters import LinkCounters
from testbed.telemetry.update_rows import LINK
from tests.traffic.isolation import isolated, real

NETWORK = Network(
    (
        Link("server", 0),
        Link("evaluator", 1),
        Link("worker-0", 2, Shape(400_000_000), Shape(400_000_000), router="campus"),
        Link("worker-1", 3),
        Link("campus", 4, Shape(), Shape(300_000_000)),
    )
)
SIZE = 500_000


def send(nodes: dict[str, int], sender: str, receiver: str, size: int) -> None:
    """Send bytes over a new TCP connection, and close it."""
    with inside_network(nodes[receiver]):
        listening = socket.create_server((NETWORK.link(receiver).address, 5000))
    with inside_network(nodes[sender]):
        calling = socket.create_connection((NETWORK.link(receiver).address, 5000))
    accepted, _ = listening.accept()
    with listening, calling, accepted:
        left, got = memoryview(bytes(size)), 0
        calling.setblocking(False)
        while got < size:
            if left:
                with contextlib.suppress(BlockingIOError):
                    left = left[calling.send(left[:100_000]) :]
            got += len(accepted.recv(1 << 20))


def settled(counters: LinkCounters) -> npt.NDArray[np.void]:
    """Read until nothing has passed for a while: the last frames of connections may be on their way."""
    before, rows = None, np.frombuffer(b"".join(counters.read()), LINK)
    while before is None or (rows["bytes"] != before["bytes"]).any():
        time.sleep(0.05)
        before, rows = rows, np.frombuffer(b"".join(counters.read()), LINK)
    return rows


@real
def test_links_are_counted_as_frames_of_the_mtu_in_both_directions() -> None:
    def body() -> None:
        nodes = {device: new_network() for device in NETWORK.devices}
        nodes |= {"campus": new_network()}
        queues = building.Queues(["server"], ["evaluator"], captured=["server"])
        building.build(NETWORK, nodes, queues)
        namespaces = nodes | {"core": own_network()}
        send(nodes, "worker-1", "server", 10_000)  # as a probe may
        counters = LinkCounters(NETWORK, queues, namespaces)
        send(nodes, "worker-0", "server", SIZE)
        send(nodes, "server", "evaluator", SIZE)
        rows = settled(counters)
        found = {(int(row["link"]), bool(row["up"])): int(row["bytes"]) for row in rows}
        # The evaluator's link is not among them, and what it is sent is in no other count.
        assert found.keys() == {(i, up) for i in (0, 2, 3, 4) for up in (True, False)}
        sent = found[2, True]
        assert wire_bytes(SIZE) <= sent <= 1.02 * wire_bytes(SIZE) + 10 * HEADERS
        assert found[4, True] == found[0, False] == sent
        back = found[0, True]
        assert found[4, False] == found[2, False] == back
        assert 3 * HEADERS <= back < 0.05 * sent
        assert found[3, True] == found[3, False] == 0
        assert not rows["dropped"].any()

    isolated(body)


@real
def test_a_link_that_gets_a_rate_later_goes_on_counting() -> None:
    def body() -> None:
        from pyroute2 import IPRoute

        from testbed.network.shaping import Egress

        nodes = {device: new_network() for device in NETWORK.devices} | {"campus": new_network()}
        queues = building.Queues(["server"], ["evaluator"])
        building.build(NETWORK, nodes, queues)
        counters = LinkCounters(NETWORK, queues, nodes | {"core": own_network()})
        send(nodes, "worker-1", "server", SIZE)
        with inside_network(nodes["worker-1"]), IPRoute() as netlink:
            egress = Egress(building.DEVICE_INDEX, Shape())
            egress.change(netlink, Shape(200_000_000))
        send(nodes, "worker-1", "server", SIZE)
        rows = np.frombuffer(b"".join(counters.read()), LINK)
        (sent,) = rows[(rows["link"] == 3) & rows["up"]]["bytes"]
        assert sent >= 2 * wire_bytes(SIZE)

    isolated(body)

"""Super-frames of segmentation offload on real links: split where a shape is of single frames.

The queues here stand for all that needs netem, which few kernels have: the same discipline splits
before both. ``tests/kernels`` measures the losses themselves.
"""

import socket
from collections.abc import Sequence

import numpy as np
import pytest
from pyroute2 import IPRoute

from testbed.experiment.sections.directions import LARGEST_QUEUE, SMALLEST_QUEUE
from testbed.network import building
from testbed.network.building import NO_QUEUES, Queues
from testbed.network.links import CORE, Link, Shape
from testbed.network.shaping import Egress
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network, new_network, own_network
from testbed.orchestrator.agent.link_counters import LinkCounters
from testbed.telemetry.update_rows import LINK
from testbed.units import SLOWEST
from tests.kernels.measuring import Holes, connection
from tests.traffic.isolation import isolated, real

pytestmark = pytest.mark.exercises("namespaces")
RATE, MTU, SEGMENT = 500_000_000, 1500, 1472
SIZE = 4_000_000
FRAMES = Shape(RATE, queue=10_000_000)
SUPER_FRAMES = Shape(RATE)


def network(shape: Shape) -> Network:
    """Two devices, the second behind two routers; each link has the shape in both directions."""
    return Network(
        (
            Link("one", 0, shape, shape),
            Link("other", 1, shape, shape, router="village"),
            Link("campus", 2, shape, shape),
            Link("village", 3, shape, shape, router="campus"),
        )
    )


def pairs_of(links: Network) -> Queues:
    """Have the two devices share every direction."""
    both = ("one", "other"), ("other", "one")
    return Queues(fair={way: [pair] for pair in both for way in links.route(*pair)})


def built(links: Network, queues: Queues) -> dict[str, int]:
    made = {name: new_network() for name in (*links.devices, *links.routers) if name != CORE}
    building.build(links, made, queues)
    return made | {CORE: own_network()}


def passed(links: Network, places: dict[str, int], sender: str, receiver: str) -> list[Holes]:
    """Send bytes from one device to the other; return what passed each link, in order."""
    found = []
    for index, up in links.route(sender, receiver):
        link = links.links_by_index[index]
        end = link.router if up else link.node
        name = link.interface if end in links.routers else building.DEVICE_INTERFACE
        address = links.link(receiver).address
        ends = places[sender], places[receiver]
        found.append(connection(*ends, address, (places[end], name), SIZE))
    return found


@real
@pytest.mark.parametrize("way", [("one", "other"), ("other", "one")], ids=["to", "fro"])
@pytest.mark.parametrize("queues", ["plain", "counted", "shared"])
def test_no_super_frame_passes_a_link_with_a_queue(queues: str, way: tuple[str, str]) -> None:
    """Neither from the device's own stack, nor forwarded by a router, where others stay whole."""

    def body() -> None:
        links = network(FRAMES)
        of = {"plain": NO_QUEUES, "counted": Queues(["one", "other"]), "shared": pairs_of(links)}
        places = built(links, of[queues])
        assert [one.largest for one in passed(links, places, *way)] == [MTU] * 4

    isolated(body)


@real
def test_super_frames_pass_whole_where_no_shape_is_of_single_frames() -> None:
    def body() -> None:
        links = network(SUPER_FRAMES)
        places = built(links, NO_QUEUES)
        assert min(one.largest for one in passed(links, places, "one", "other")) > 10 * MTU

    isolated(body)


@real
@pytest.mark.parametrize("split", range(4))
def test_a_super_frame_arrives_whole_at_the_link_that_splits_it(split: int) -> None:
    """The first link that has a queue splits, whatever the sender's device is allowed to send."""

    def body() -> None:
        plain = network(SUPER_FRAMES)
        way = plain.route("one", "other")
        index, up = way[split]
        links = list(plain.links)
        ends = ("uplink", "downlink") if up else ("downlink", "uplink")
        old = links[index]
        shapes = {ends[0]: FRAMES, ends[1]: SUPER_FRAMES}
        links[index] = Link(old.node, old.index, shapes["uplink"], shapes["downlink"], old.router)
        changed = Network(tuple(links))
        places = built(changed, NO_QUEUES)
        whole = [one.largest > 2 * MTU for one in passed(changed, places, "one", "other")]
        assert whole == [True] * split + [False] * (len(way) - split)

    isolated(body)


def hand_over(source: int, address: str, frames: Sequence[int]) -> None:
    """Send datagrams of so many full frames each, by segmentation offload."""
    with (
        inside_network(source),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.setsockopt(17, 103, SEGMENT)  # UDP_SEGMENT
        for count in frames:
            sender.sendto(bytes(SEGMENT * count), (address, 9))


@real
@pytest.mark.parametrize("queues", ["plain", "counted", "shared"])
@pytest.mark.parametrize("up", [True, False])
def test_drops_are_counted_in_frames_as_what_passes_is(queues: str, up: bool) -> None:
    """Each super-frame loses what the queue has no room for, and nothing else."""

    def body() -> None:
        shape = Shape(10_000_000, queue=30 * 1514)
        ends = (shape, Shape()) if up else (Shape(), shape)
        links = Network((Link("one", 0, *ends), Link("other", 1)))
        sender, receiver = ("one", "other") if up else ("other", "one")
        of = {
            "plain": NO_QUEUES,
            "counted": Queues(["one"]),
            "shared": Queues(fair={(0, up): [(sender, receiver)]}),
        }
        places = built(links, of[queues])
        counters = LinkCounters(links, of[queues], places)
        with inside_network(places[receiver]):
            taking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # no ICMP error is sent
        with taking:
            taking.bind((links.link(receiver).address, 9))
            sent = [40, 40, 1, 7]
            hand_over(places[sender], links.link(receiver).address, sent)
            with inside_network(places[receiver]):
                wait_for_nothing(taking)
        rows = np.frombuffer(b"".join(counters.read()), LINK)
        ((frames, dropped),) = rows[(rows["link"] == 0) & (rows["up"] == up)][
            ["frames", "dropped"]
        ].tolist()
        assert frames + dropped == sum(sent)
        assert 30 <= frames < 60

    isolated(body)


def wait_for_nothing(taking: socket.socket) -> None:
    """Take datagrams until none came for a while."""
    taking.settimeout(0.3)
    try:
        while True:
            taking.recv(1 << 16)
    except TimeoutError:
        pass


@real
def test_a_split_holds_while_the_rate_changes() -> None:
    def body() -> None:
        links = network(FRAMES)
        places = built(links, NO_QUEUES)
        egress = Egress(building.DEVICE_INDEX, FRAMES)
        with inside_network(places["one"]), IPRoute() as netlink:
            egress.change(netlink, Shape(RATE // 2, queue=FRAMES.queue))
        assert passed(links, places, "one", "other")[0].largest == MTU

    isolated(body)


@real
@pytest.mark.parametrize("rate", [SLOWEST, 2**63 - 1])
@pytest.mark.parametrize("queue", [None, SMALLEST_QUEUE, LARGEST_QUEUE])
def test_the_least_and_the_most_that_an_experiment_may_ask_for_can_be_built(
    rate: int, queue: int | None
) -> None:
    def body() -> None:
        built(network(Shape(rate, queue=queue)), NO_QUEUES)

    isolated(body)

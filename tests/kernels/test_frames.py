"""Links lose single frames, as many as asked for, whatever segmentation offload hands over at once."""

import math
import socket
from dataclasses import replace

import numpy as np
import pytest
from pyroute2 import IPRoute

from testbed.network import building
from testbed.network.building import NO_QUEUES, Queues
from testbed.network.links import CORE, Shape
from testbed.network.netlink import Requests
from testbed.network.segments import SEGMENT
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network
from testbed.orchestrator.agent.link_counters import LinkCounters
from testbed.telemetry.update_rows import LINK
from tests.kernels.conftest import Measured
from tests.kernels.measuring import connection
from tests.kernels.test_shaping import Wired, assert_share, told, wire

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("netem")]
LOSS = 0.01


def counted(wired: Wired, queues: Queues = NO_QUEUES) -> LinkCounters:
    """Begin to count the link for its table."""
    places = {CORE: wired.core, wired.link.node: wired.device}
    return LinkCounters(Network((wired.link,)), queues, places)


def frames_and_drops(counters: LinkCounters, *, up: bool) -> tuple[int, int]:
    """Return what the table says of one direction."""
    rows = np.frombuffer(b"".join(counters.read()), LINK)
    ((frames, dropped),) = rows[rows["up"] == up][["frames", "dropped"]].tolist()
    return frames, dropped


def name(rate: int) -> str:
    return f"{rate // 1_000_000:,} Mbit/s"


def assert_lost_one_by_one(
    rate: int, up: bool, queues: Queues, frames: int, note: Measured
) -> None:
    shape = Shape(rate, loss=LOSS)
    with wire(*((shape, Shape()) if up else (Shape(), shape)), queues) as wired:
        counters = counted(wired, queues)
        ends = (wired.device, wired.core) if up else (wired.core, wired.device)
        link = wired.link
        address = link.router_address if up else link.address
        seen_at = ends[1], link.interface if up else building.DEVICE_INTERFACE
        found = connection(*ends, address, seen_at, frames * SEGMENT)
        passed, dropped = frames_and_drops(counters, up=up)
    what = f"{name(rate)}, {found.frames:,} frames"
    note(f"lost of {what}", "1.0 %", f"{found.lost / found.frames:.2%}".replace("%", " %"))
    note(f"lost in a row, {what}", "1.01", f"{found.mean_burst:.2f}")
    assert found.largest == 1500
    assert_share(found.lost, found.frames, LOSS)
    assert found.mean_burst < 1.5
    # The table has both in one unit, and what was sent again as well.
    assert passed >= found.frames
    assert_share(dropped, passed + dropped, LOSS)
    assert dropped >= found.lost


@pytest.mark.parametrize(
    ("queues", "up"),
    [("plain", True), ("counted", False), pytest.param("shared", True, marks=pytest.mark.quick)],
)
def test_frames_are_lost_one_by_one(queues: str, up: bool, measured: Measured) -> None:
    of = {
        "plain": NO_QUEUES,
        "counted": Queues(["worker-0"]),
        "shared": Queues(fair={(2, True): [], (2, False): []}),
    }
    assert_lost_one_by_one(200_000_000, up, of[queues], 10_000, measured)


@pytest.mark.parametrize(
    ("rate", "frames"), [(10_000_000, 8_000), (200_000_000, 100_000), (1_000_000_000, 100_000)]
)
def test_the_loss_is_that_of_frames_at_each_rate(
    rate: int, frames: int, measured: Measured
) -> None:
    assert_lost_one_by_one(rate, True, NO_QUEUES, frames, measured)


@pytest.mark.parametrize(
    "delay", [0.0, pytest.param(0.02, marks=pytest.mark.quick)], ids=["no delay", "delay"]
)
def test_what_a_queue_drops_is_counted_in_frames(delay: float) -> None:
    """Before a delay and after it: each frame either passes or is dropped."""
    with wire(Shape(10_000_000, delay=delay, queue=30 * 1514)) as wired:
        counters = counted(wired)
        with inside_network(wired.core):
            taking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with inside_network(wired.device):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with taking, sender:
            taking.bind((wired.link.router_address, 0))
            taking.settimeout(2.0)
            sender.setsockopt(17, 103, 1472)  # UDP_SEGMENT
            for count in (40, 40, 1, 7):
                sender.sendto(bytes(1472 * count), taking.getsockname())
            arrived = 0
            try:
                while True:
                    taking.recv(2048)
                    arrived += 1
            except TimeoutError:
                pass
        passed, dropped = frames_and_drops(counters, up=True)
    assert 30 <= passed < 60 and passed + dropped == 88


@pytest.mark.quick
def test_netem_has_room_for_the_smallest_frames_at_every_rate() -> None:
    """Also once a trace, or a fault, has changed the rate."""
    shape = Shape(1_000_000_000, delay=0.1, loss=LOSS)
    with wire(shape) as wired:

        def room() -> int:
            options = told(wired.device)["netem"]["options"]
            limit = options["limit"]  # type: ignore[index]
            assert isinstance(limit, int)
            return limit

        def needed(rate: int) -> int:
            return math.ceil(rate / 8 * shape.delay / 60)

        assert room() >= needed(1_000_000_000) > 200_000
        egress = wired.egress()
        with inside_network(wired.device):
            requests = Requests()
            egress.add_rate(requests, 2_000_000_000)
            requests.carry_out()
            requests.close()
        assert room() >= needed(2_000_000_000)
        with inside_network(wired.device), IPRoute() as netlink:
            egress.change(netlink, replace(shape, rate=4_000_000_000))
        assert room() >= needed(4_000_000_000)


@pytest.mark.quick
def test_a_link_splits_super_frames_while_frames_are_damaged() -> None:
    """A delay alone holds super-frames whole; damage that begins later is of single frames."""
    shape = Shape(200_000_000, delay=0.005)
    with wire(shape) as wired:
        egress = wired.egress()
        ends = wired.device, wired.core, wired.link.router_address

        def largest() -> int:
            return connection(*ends, (wired.core, wired.link.interface), 3000 * SEGMENT).largest

        assert largest() > 3000
        wired.change(egress, replace(shape, corrupt=1e-9))
        assert largest() == 1500
        wired.change(egress, shape)
        assert largest() > 3000

"""Links have the rate, delay, loss and damage that the kernel is asked for.

Each is measured and compared with its setting; delay and loss also with what ``tc`` reports.
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from pyroute2 import IPRoute

from testbed.network import building
from testbed.network.building import NO_QUEUES, Queues
from testbed.network.links import Link, Shape
from testbed.network.shaping import Egress
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network, new_network
from tests.kernels.conftest import Measured, qdiscs
from tests.kernels.measuring import Stream, fastest, order, round_trips, stream

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("netem")]
UPLINK = Shape(rate=4_000_000, delay=0.04, loss=0.02)
DOWNLINK = Shape(rate=10_000_000)


@dataclass
class Wired:
    """One device's link to the core, as a run makes it."""

    link: Link
    core: int
    device: int

    def egress(self) -> Egress:
        """Return the device's end of the link, to be changed."""
        return Egress(building.DEVICE_INDEX, self.link.uplink)

    def change(self, egress: Egress, shape: Shape) -> None:
        with inside_network(self.device), IPRoute() as netlink:
            egress.change(netlink, shape)

    def up(self, count: int) -> Stream:
        return stream(self.device, self.core, self.link.router_address, count)

    def down(self, count: int) -> Stream:
        return stream(self.core, self.device, self.link.address, count)

    def delay(self) -> float:
        """Return the shortest of 12 round trips in seconds: only the asked delay affects each one."""
        return min(round_trips(self.device, self.link.router_address, 12))


@contextlib.contextmanager
def wire(uplink: Shape, downlink: Shape = DOWNLINK, queues: Queues = NO_QUEUES) -> Iterator[Wired]:
    """Make a link from a device to a core."""
    link = Link("worker-0", 2, uplink, downlink)
    core, device = new_network(), new_network()
    with inside_network(core):
        building.build(Network((link,)), {"worker-0": device}, queues)
    yield Wired(link, core, device)
    os.close(core)
    os.close(device)


@pytest.fixture
def wired() -> Iterator[Wired]:
    with wire(UPLINK) as one:
        yield one


def tc(network: int, *arguments: str) -> None:
    """Run tc in a network namespace."""
    command = ["nsenter", f"--net=/proc/self/fd/{network}", "tc", *arguments]
    subprocess.run(command, check=True, pass_fds=[network])


def told(network: int) -> dict[str, dict[str, object]]:
    """Return the queueing disciplines of a device's end of the link, as tc reports them."""
    found: dict[str, dict[str, object]] = {}

    def ask() -> None:  # a thread of its own has the namespace to itself
        with inside_network(network):
            found.update(qdiscs(threading.get_native_id()))

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    return found


def assert_rate(found: float, asked: int) -> None:
    """Assert that the rate is 90 % to 103 % of what was asked."""
    assert 0.9 * asked < found < 1.03 * asked


def assert_delay(found: float, asked: float) -> None:
    """Assert that the delay is at least what was asked, and less than 30 ms more."""
    assert asked <= found < asked + 0.03


def assert_share(hits: int, trials: int, asked: float) -> None:
    """Assert that hits are within five standard deviations (binomial) of what was asked."""
    margin = 5 * (trials * asked * (1 - asked)) ** 0.5
    assert abs(hits - trials * asked) <= margin


@pytest.mark.quick
def test_measured_links_are_as_asked(wired: Wired, measured: Measured) -> None:
    assert UPLINK.rate and DOWNLINK.rate
    up = wired.up(2500)
    rate = fastest(lambda: wired.up(800), UPLINK.rate).rate
    down, delay = fastest(lambda: wired.down(1500), DOWNLINK.rate), wired.delay()
    measured("uplink", "4.00 Mbit/s", f"{rate / 1e6:.2f} Mbit/s")
    measured("downlink", "10.00 Mbit/s", f"{down.rate / 1e6:.2f} Mbit/s")
    measured("delay", "40.0 ms", f"{delay * 1e3:.1f} ms")
    measured("loss", "2.0 %", f"{up.lost:.1%}".replace("%", " %"))
    assert_rate(rate, UPLINK.rate)
    assert_rate(down.rate, DOWNLINK.rate)
    assert_delay(delay, UPLINK.delay)
    assert_share(up.sent - up.arrived, up.sent, UPLINK.loss)
    assert down.arrived == down.sent
    netem = told(wired.device)["netem"]
    assert netem["options"]["delay"]["delay"] == pytest.approx(0.04)  # type: ignore[index]
    assert netem["options"]["loss-random"]["loss"] == pytest.approx(0.02)  # type: ignore[index]
    assert netem["drops"] >= up.sent - up.arrived  # type: ignore[operator]


@pytest.mark.quick
def test_damage_is_as_asked_and_can_be_ended(wired: Wired, measured: Measured) -> None:
    egress = wired.egress()
    damaging = replace(UPLINK, loss=0.0, delay=0.0, corrupt=0.05)
    wired.change(egress, damaging)
    found = wired.up(2500)
    measured("damaged frames", "5.0 %", f"{found.lost:.1%}".replace("%", " %"))
    # A flipped bit in an address or port of a header loses the datagram, too.
    assert_share(found.sent - found.arrived, found.sent, damaging.corrupt)
    assert found.damaged > 0.5 * (found.sent - found.arrived)
    assert wired.delay() < UPLINK.delay
    wired.change(egress, replace(damaging, corrupt=0.0))
    whole = wired.up(1000)
    assert (whole.arrived, whole.damaged) == (whole.sent, 0)


def test_a_change_of_the_rate_keeps_delay_and_loss(wired: Wired, measured: Measured) -> None:
    egress = wired.egress()
    wired.change(egress, replace(UPLINK, rate=2_000_000))
    rate = fastest(lambda: wired.up(400), 2_000_000).rate
    measured("uplink slowed down", "2.00 Mbit/s", f"{rate / 1e6:.2f} Mbit/s")
    assert_rate(rate, 2_000_000)
    assert_delay(wired.delay(), UPLINK.delay)
    wired.change(egress, UPLINK)
    assert UPLINK.rate
    assert_rate(fastest(lambda: wired.up(800), UPLINK.rate).rate, UPLINK.rate)


@pytest.mark.parametrize(
    "queues",
    [NO_QUEUES, pytest.param(Queues(counted=["worker-0"]), marks=pytest.mark.quick)],
    ids=["plain", "counted"],
)
def test_each_direction_has_its_own_delay_jitter_and_loss(
    queues: Queues, measured: Measured
) -> None:
    up = Shape(4_000_000, delay=0.04, jitter=0.02)
    down = Shape(10_000_000, delay=0.06, loss=0.05)
    with wire(up, down, queues) as wired:
        trips = round_trips(wired.device, wired.link.router_address, 60)
        lost = wired.down(2500)
        numbers = order(wired.device, wired.core, wired.link.router_address, 300)
    told = f"{min(trips) * 1e3:.0f} to {max(trips) * 1e3:.0f} ms"
    measured("round trips, 40 ± 20 and 60 ms", "80 to 120 ms", told)
    measured("loss of a downlink", "5.0 %", f"{lost.lost:.1%}".replace("%", " %"))
    assert 0.08 <= min(trips) < 0.095 and max(trips) > 0.105
    assert_share(lost.sent - lost.arrived, lost.sent, down.loss)
    # Jitter of 20 ms on datagrams that are 3 ms apart, and none overtakes another.
    assert numbers == list(range(300))


@pytest.mark.parametrize(
    "delay", [pytest.param(0.0, marks=pytest.mark.quick), 0.04], ids=["no delay", "delay"]
)
def test_a_queue_has_room_for_its_length_and_drops_the_rest(
    delay: float, measured: Measured
) -> None:
    with wire(Shape(4_000_000, delay=delay, queue=30_000)) as wired:
        found = wired.up(300)
        measured("datagrams of 1,442 B in a queue of 30 kB", "20", str(found.arrived))
        # Two more pass at once, and some leave while the others are sent.
        assert 22 <= found.arrived < 60
        if not delay:
            wired.change(wired.egress(), Shape(4_000_000, delay=0.04, queue=30_000))
            assert_delay(wired.delay(), 0.04)
            assert 22 <= wired.up(300).arrived < 60


@pytest.mark.parametrize(
    "broken", [pytest.param("delay and loss", marks=pytest.mark.quick), "rate"]
)
def test_a_link_that_lost_its_shape_is_noticed(wired: Wired, broken: str) -> None:
    if broken == "rate":
        tc(wired.device, "qdisc", "del", "dev", "eth0", "root")
        with pytest.raises(AssertionError):
            assert_rate(wired.up(2000).rate, 4_000_000)
    else:
        tc(wired.device, "qdisc", "del", "dev", "eth0", "parent", "1:10", "handle", "30:")
        with pytest.raises(AssertionError):
            assert_delay(wired.delay(), UPLINK.delay)
        found = wired.up(2500)
        with pytest.raises(AssertionError):
            assert_share(found.sent - found.arrived, found.sent, UPLINK.loss)

"""The probe over real links: as asked, and broken on purpose."""

import contextlib
from collections.abc import Callable, Mapping, Sequence

import pytest
from pyroute2 import IPRoute

from testbed.doctor.attempts import missing_disciplines
from testbed.network import building, packet_trains, shaping
from testbed.network.address_filters import ROOT
from testbed.network.building import DEVICE_INDEX
from testbed.network.links import CORE, Link, Shape
from testbed.network.probe import TRIES, ProbedDirection, probe
from testbed.network.shaping import Egress
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network, new_network, own_network
from tests.traffic.isolation import isolated, real
from traffic.counters import Meter

MBIT = 1_000_000
pytestmark = pytest.mark.exercises("namespaces")


def built(*shapes: tuple[Shape, Shape]) -> tuple[list[Link], dict[str, int]]:
    """Build a star, in the test's namespace, whose links have the given uplinks and downlinks."""
    links = [Link(f"worker-{i}", i, *shape) for i, shape in enumerate(shapes)]
    namespaces = {link.node: new_network() for link in links}
    building.build(Network(tuple(links)), namespaces)
    return links, {CORE: own_network(), **namespaces}


def probed(
    links: Sequence[Link], namespaces: Mapping[str, int]
) -> dict[tuple[str, str], ProbedDirection]:
    found = probe(links, namespaces, lambda: False)
    return {(one.device, one.direction): one for one in found}


def at_last(condition: Callable[[], bool]) -> None:
    """Check a condition up to five times, as it may fail because the host is busy."""
    assert any(condition() for _ in range(5))


@real
def test_links_that_are_as_asked_are_found_so() -> None:
    asked = [
        (Shape(10 * MBIT), Shape(100 * MBIT)),
        (Shape(MBIT), Shape()),
        (Shape(), Shape(50_000)),
        (Shape(200 * MBIT), Shape(20_000)),
        (Shape(), Shape()),
    ]

    def body() -> None:
        links, namespaces = built(*asked)

        def good() -> bool:
            found = probed(links, namespaces)
            assert {key for key, one in found.items() if one.measured} == {
                (f"worker-{i}", direction)
                for i, shapes in enumerate(asked)
                for direction, shape in zip(("uplink", "downlink"), shapes, strict=True)
                if shape.rate
            }
            return all(
                not one.off
                and one.measured is not None
                and one.measured.rate == pytest.approx(one.asked.rate, rel=0.03)
                and one.measured.lost == 0
                for one in found.values()
            )

        at_last(good)

    isolated(body)


@real
@pytest.mark.parametrize("direction", ["uplink", "downlink"])
@pytest.mark.parametrize("rate", [None, 20 * MBIT, 8 * MBIT, MBIT // 2])
def test_shaping_that_is_gone_or_wrong_is_found(rate: int | None, direction: str) -> None:
    def body() -> None:
        shape = Shape(10 * MBIT)
        links, namespaces = built((shape, shape), (shape, shape))
        uplink = direction == "uplink"
        there = inside_network(namespaces["worker-1"]) if uplink else contextlib.nullcontext()
        with there, IPRoute() as netlink:
            interface = DEVICE_INDEX if uplink else DEVICE_INDEX + 1
            if rate is None:
                netlink.tc("del", "htb", interface, ROOT)
            else:
                shaping.set_class(netlink, "change", interface, shaping.COUNTED, rate)

        def seen() -> bool:
            found = probed(links, namespaces)
            broken = found.pop(("worker-1", direction))
            assert broken.off == ("rate",) and broken.measured is not None
            assert broken.tries == TRIES or not broken.drained or rate == MBIT // 2
            if rate is None:
                assert broken.measured.at_least
            else:
                assert broken.measured.rate == pytest.approx(rate, rel=0.05)
            return all(not one.off for one in found.values())

        at_last(seen)

    isolated(body)


@real
def test_queues_are_empty_afterwards_and_only_trains_were_sent() -> None:
    def body() -> None:
        links, namespaces = built((Shape(MBIT), Shape(10 * MBIT)), (Shape(MBIT), Shape()))
        meters = {}
        for link in links:
            with inside_network(namespaces[link.node]):
                meters[link.node] = Meter(DEVICE_INDEX, shaping.COUNTED)
        core = Meter(DEVICE_INDEX, shaping.COUNTED)
        found = probed(links[:1], namespaces)
        up, down = (found[("worker-0", way)] for way in ("uplink", "downlink"))
        device = dict(
            zip(("up", "other"), (meters[link.node].read() for link in links), strict=True)
        )
        assert up.measured is not None and down.measured is not None
        # Each direction carried only its trains, whole, even if the measurement ended before the last
        # packet was seen: no ICMP, no ARP.
        assert device["up"][2] == up.tries * len(packet_trains.compose(Shape(MBIT)).payloads)
        assert core.read()[2] == down.tries * len(packet_trains.compose(Shape(10 * MBIT)).payloads)
        assert device["up"][11] == core.read()[11] == 0
        assert device["other"][1:5] == (0, 0, 0, 0)

    isolated(body)


@real
def test_a_link_that_is_down_is_reported_and_disturbs_no_other() -> None:
    def body() -> None:
        shape = Shape(10 * MBIT)
        links, namespaces = built((shape, shape), (shape, shape))
        with inside_network(namespaces["worker-0"]), IPRoute() as netlink:
            netlink.link("set", index=DEVICE_INDEX, state="down")

        def seen() -> bool:
            found = probed(links, namespaces)
            up, _ = (found.pop(("worker-0", way)) for way in ("uplink", "downlink"))
            assert up.failed is not None and "unreachable" in up.failed and up.measured is None
            return all(not one.off for one in found.values())

        at_last(seen)

    isolated(body)


@real
def test_a_probe_that_is_given_up_returns_at_once() -> None:
    def body() -> None:
        links, namespaces = built((Shape(MBIT), Shape()))
        (one,) = probe(links, namespaces, lambda: True)
        assert (one.failed, one.measured) == ("the probe was given up", None)

    isolated(body)


@real
def test_a_wrong_delay_and_a_wrong_loss_are_found() -> None:
    missing = missing_disciplines()
    if "netem" in missing:
        pytest.skip(f"this kernel has no netem: {missing['netem']}")

    def body() -> None:
        asked = Shape(5 * MBIT, 0.04, 0.02)
        links, namespaces = built((asked, Shape(20 * MBIT)), (Shape(None, 0.1), Shape()))

        def good() -> bool:
            found = probed(links, namespaces)
            return all(not one.off and one.measured is not None for one in found.values())

        at_last(good)
        with inside_network(namespaces["worker-0"]), IPRoute() as netlink:
            Egress(DEVICE_INDEX, asked).change(netlink, Shape(5 * MBIT, 0.08, 0.0))
        broken = probed(links, namespaces)[("worker-0", "uplink")]
        assert {"delay", "loss"} <= set(broken.off)
        assert broken.measured is not None and broken.measured.lost == 0
        assert broken.measured.delay == pytest.approx(0.08, rel=0.05)

    isolated(body)

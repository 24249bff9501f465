"""Netlink requests, against those that pyroute2 packs, and as the kernel carries them out."""

import json
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from pyroute2 import IPBatch, IPRoute

from testbed.doctor.attempts import make_namespaces, try_in_child
from testbed.network import building
from testbed.network.building import Queues
from testbed.network.links import Link, Shape
from testbed.network.netlink import Requests
from testbed.network.shaping import COUNTED, packed_egress, set_class
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network, new_network


def _rate(p: IPBatch) -> None:
    p.tc("add", "htb", 7, 0x10000, default=0x10)
    set_class(p, "add", 7, COUNTED, 5_000_000)


def _rate_delay_loss_and_damage(p: IPBatch) -> None:
    _rate(p)
    shares = {"delay": 40_000, "loss": 1, "prob_corrupt": 20, "corr_corrupt": 0}
    # In 40 ms 417 of the smallest frames are on the way.
    p.tc("add", "netem", 7, 0x100000, parent=0x300001, limit=100_417, **shares)


_SAME: dict[str, tuple[Callable[[Requests], None], Callable[[IPBatch], Any]]] = {
    "up": (lambda r: r.set_up(7), lambda p: p.link("set", index=7, state="up")),
    "address": (
        lambda r: r.add_address(7, "10.77.0.4", 31),
        lambda p: p.addr("add", index=7, address="10.77.0.4", prefixlen=31),
    ),
    "neighbour": (
        lambda r: r.add_neighbour(7, "10.77.0.5", "02:7b:00:00:00:05"),
        lambda p: p.neigh(
            "add", ifindex=7, dst="10.77.0.5", lladdr="02:7b:00:00:00:05", state="permanent"
        ),
    ),
    "route": (
        lambda r: r.add_route("10.77.0.4"),
        lambda p: p.route("add", dst="default", gateway="10.77.0.4"),
    ),
    "shape": (
        lambda r: r.shape(7, packed_egress(Shape(5_000_000))),
        _rate,
    ),
    # Our message holds the share of damaged frames even if it is 0, and pyroute2's only if it is not.
    "delay, loss and damage": (
        lambda r: r.shape(7, packed_egress(Shape(5_000_000, 0.04, 0.01, 0.2))),
        _rate_delay_loss_and_damage,
    ),
}


def _without_numbers(message: bytes) -> tuple[int, bytes]:
    """Return a request's kind and body, without the numbers of the request and the process."""
    _, kind, _, _, _ = struct.unpack_from("=IHHII", message)
    return kind, bytes(message[16:])


@pytest.mark.parametrize("what", _SAME)
def test_requests_are_packed_as_by_pyroute2(what: str) -> None:
    ours, theirs = _SAME[what]
    with closing(Requests()) as requests, IPBatch() as batch:
        ours(requests)
        theirs(batch)
        packed, expected = [message for _, message in requests._messages], bytes(batch.batch)
    # pyroute2 knows neither this discipline's rate nor its burst.
    packed = [message for message in packed if b"tbf" not in message]
    found, place = [], 0
    while place < len(expected):
        (length,) = struct.unpack_from("=I", expected, place)
        found.append(expected[place : place + length])
        place += length
    if what == "route":  # pyroute2 names the table a second time
        assert packed[0][28:] in found[0]
        found = [packed[0][:16] + found[0][16:28] + packed[0][28:]]
    assert [*map(_without_numbers, packed)] == [*map(_without_numbers, found)]


def _build() -> str:
    """Build a star of three devices in new namespaces; return what the kernel reports, as JSON."""
    make_namespaces()
    up, down = Shape(8_000_000), Shape(16_000_000)
    links = [Link("server", 0), Link("evaluator", 1), Link("worker-0", 2, up, down)]
    networks = {link.node: new_network() for link in links}
    counts: list[int] = []

    def told(count: int) -> bool:
        counts.append(count)
        return False

    building.build(Network(tuple(links)), networks, Queues(["server"], ["evaluator"]), told)
    with IPRoute() as core:
        seen: dict[str, Any] = {"core": _seen(core), "counts": counts}
    for name, network in networks.items():
        with inside_network(network), IPRoute() as device:
            seen[name] = _seen(device)
    failed = ""
    with closing(Requests()) as core:
        core.add_address(building.DEVICE_INDEX, links[0].router_address, 31)  # already there
        core.set_up(building.DEVICE_INDEX)
        try:
            core.carry_out()
        except OSError as error:
            failed = str(error)
    return json.dumps(seen | {"failed": failed})


def _seen(netlink: IPRoute) -> dict[str, Any]:
    interfaces = [link for link in netlink.get_links() if link["index"] > 1]
    return {
        "interfaces": {
            link["index"]: [link.get("ifname"), link.get("address"), link.get("operstate")]
            for link in interfaces
        },
        "addresses": sorted(
            (a["index"], a.get("local"), a["prefixlen"])
            for a in netlink.get_addr(family=socket.AF_INET)
            if a["index"] > 1
        ),
        "neighbours": sorted(
            (n["ifindex"], n.get("dst"), n.get("lladdr"), n["state"])
            for n in netlink.get_neighbours(family=socket.AF_INET)
            if n["ifindex"] > 1
        ),
        "gateways": [r.get("gateway") for r in netlink.get_default_routes(family=socket.AF_INET)],
        "rates": {
            link["index"]: [
                one.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")["rate"] * 8
                for one in netlink.get_classes(link["index"])
            ]
            for link in interfaces
        },
    }


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_the_kernel_has_the_star_as_requested() -> None:
    told = try_in_child(_build)
    assert told.startswith("{"), told
    seen = json.loads(told)
    assert seen["counts"] == [0]
    core, worker = seen["core"], seen["worker-0"]
    first = building.DEVICE_INDEX
    assert core["interfaces"] == {
        str(first + i): [f"link{i}", f"02:7b:00:00:00:{2 * i:02x}", "UP"] for i in range(3)
    }
    assert core["addresses"] == [[first + i, f"10.77.0.{2 * i}", 31] for i in range(3)]
    assert core["neighbours"] == [
        [first + i, f"10.77.0.{2 * i + 1}", f"02:7b:00:00:00:{2 * i + 1:02x}", 0x80]
        for i in range(3)
    ]
    assert core["rates"][str(first + 2)] == [16_000_000]
    assert len(core["rates"][str(first)]) == 2  # the counted and the uncounted class
    assert core["rates"][str(first + 1)] == []
    assert worker["interfaces"] == {str(first): ["eth0", "02:7b:00:00:00:05", "UP"]}
    assert worker["addresses"] == [[first, "10.77.0.5", 31]]
    assert worker["neighbours"] == [[first, "10.77.0.4", "02:7b:00:00:00:04", 0x80]]
    assert worker["gateways"] == ["10.77.0.4"]
    assert worker["rates"] == {str(first): [8_000_000]}
    assert seen["evaluator"]["rates"] == {str(first): []}
    assert seen["failed"].startswith("[Errno 17] the address 10.77.0.0 cannot be set up")

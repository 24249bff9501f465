"""The underlay's delay is part of what a crossing link is asked to have, and cannot be less."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from testbed.device_names import HOME_HOST
from testbed.errors import HostError
from testbed.experiment import load
from testbed.network.links import Shape
from testbed.orchestrator.hosts.hosts_file import HostsFile, OtherHost
from testbed.orchestrator.hosts.inquiries import HostClock
from testbed.orchestrator.hosts.member import Member
from testbed.orchestrator.hosts.secured_connection import SecuredConnection
from testbed.orchestrator.hosts.spread import Spread
from testbed.orchestrator.hosts.underlay_delay import CrossingDirection, less_underlay, remarks
from testbed.planning import node_plan
from testbed.planning.plan import Plan, plan
from tests.orchestrator.hosts.test_secured_connection import SECRET, proven

SPEC = """
name: apart
dataset: digits
model: mlp
clock: wall
training: {updates: 10}
algorithms: [asgd]
devices:
  workers: 4
  classes:
    - {name: near, share: 50%, uplink: 10mbit}
    - {name: far, share: 50%, uplink: 10mbit, delay: {up: 20ms, down: 10ms}, jitter: 2ms}
"""


def spread(delay: float, *, accept: bool = False) -> Spread:
    (one,) = plan(load.parse(SPEC, Path("apart.yaml")))
    connection, _ = proven(SECRET, SECRET)
    assert isinstance(connection, SecuredConnection)
    host = OtherHost("b", "10.0.0.2", 14790, "10.0.0.2")
    members = {"b": Member(host, connection, 2, 1 << 30, HostClock(0.0, 0.0, 1e-5), b"", "")}
    place = {"worker-0..3": "b"}
    file = HostsFile("10.0.0.1", [host], place, accept_underlay=accept)
    return Spread.over(file, one, members, {"b": delay})


def links(found: Spread, host: str, tmp_path: Path) -> dict[str, dict[str, Any]]:
    assert isinstance(found.plan, Plan)
    part: Any = found.part(node_plan.network(found.plan, tmp_path), host)
    return {link["node"]: link for link in part["links"]}


def test_both_ends_give_a_link_the_delay_that_it_lacks(tmp_path: Path) -> None:
    found = spread(0.004)
    asked = {link.node: link for link in found.plan.links}
    both = {host: links(found, host, tmp_path) for host in (HOME_HOST, "b")}
    assert both[HOME_HOST] == both["b"]
    for name, link in both["b"].items():
        far = asked[name].uplink.delay > 0
        assert link["uplink"]["delay"] == pytest.approx(0.016 if far else 0.0)
        assert link["downlink"]["delay"] == pytest.approx(0.006 if far else 0.0)
        assert link["uplink"]["jitter"] == asked[name].uplink.jitter
        assert link["uplink"]["rate"] == asked[name].uplink.rate
    assert isinstance(found.plan, Plan)
    routes = found.part(node_plan.network(found.plan, tmp_path), "b")["delays"]
    assert routes == [(link.uplink.delay, link.downlink.delay) for link in found.plan.links]
    # Only those that ask for no delay are later, and below 2 ms that is not worth a remark.
    later = found.record()["underlay"]
    assert {(one["links"], one["direction"], one["count"]) for one in later} == {
        ("the devices of class near", way, 2) for way in ("uplink", "downlink")
    }
    assert all(one["asked"] == 0 and one["added"] == 0.004 for one in later)
    assert len(list(remarks(found.crossing_directions))) == 2
    assert not list(remarks(spread(0.002).crossing_directions))


def test_a_delay_below_the_underlays_is_refused_or_written_down(tmp_path: Path) -> None:
    wrong = r"of class far: the downlink .* a delay of 10 ms, .* to host b alone takes 12 ms"
    with pytest.raises(HostError, match=wrong):
        spread(0.012)
    found = spread(0.012, accept=True)
    taken = [one for one in found.record()["underlay"] if one["asked"]]
    assert [(one["direction"], one["asked"]) for one in taken] == [("downlink", 0.01)]
    assert taken[0]["added"] == pytest.approx(0.002)
    for link in links(found, HOME_HOST, tmp_path).values():
        assert link["downlink"]["delay"] == 0.0
    texts = list(remarks(found.crossing_directions))
    assert any(
        "receive over it with 2 ms more than asked (--accept-underlay)" in one for one in texts
    )


def test_the_shortest_delay_with_its_jitter_decides() -> None:
    within = CrossingDirection("the workers", True, "b", 0.010, 0.003, 0.0079)
    assert within.problem is None  # 0.9 ms of 10 are within the probe's tolerance
    assert dataclasses.replace(within, underlay=0.0081).problem is not None
    assert "10 ms ± 3 ms" in str(dataclasses.replace(within, underlay=0.009).problem)
    shape = dataclasses.asdict(Shape(1_000, 0.010, jitter=0.003))
    assert less_underlay(shape, 0.008) == shape | {"delay": pytest.approx(0.002), "jitter": 0.002}


def test_clocks_that_differ_or_drift_are_remarked() -> None:
    begin = HostClock(1000.0, 0.004, 0.0001)
    assert not list(begin.remarks("b", HostClock(1000.003, -0.004, 0.0001)))
    assert not list(begin.remarks("b", None))
    (drifted,) = begin.remarks("b", HostClock(1000.006, 0.0, 0.0001))
    assert "within ± 6.1 ms only" in drifted
    (off,) = begin.remarks("b", HostClock(1000.0, -0.3, 0.001))
    assert "the system clock of host b is 300 ms ahead of this host's" in off


def test_an_address_that_is_not_this_host_s_is_a_sentence() -> None:
    found = spread(0.004)
    file = dataclasses.replace(found.file, underlay="192.0.2.1")
    with pytest.raises(HostError, match=r"underlay: there is no way from 192.0.2.1 to 10.0.0.2"):
        _ = dataclasses.replace(found, file=file).longest_packets

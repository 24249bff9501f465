"""The workers' shares of links, and the lines about them in ``testbed plan``."""

import math
from pathlib import Path

import pytest

from testbed.cli import plan_routes
from testbed.experiment.load import load
from testbed.network.links import Link, Shape
from testbed.network.topology import Network
from testbed.planning.plan import Plan, plan
from testbed.planning.routes import Share, shares_of
from tests.planning.test_graph_source import BASE

CLUSTERS = """network:
  uplink: 40mbit
  server: {downlink: 60mbit}
  clusters:
    - {name: campus, share: 60%, uplink: 50mbit}
    - {name: village, share: 40%, uplink: 20mbit, downlink: 8mbit}
"""


def planned(folder: Path, network: str, *overrides: str) -> Plan:
    path = folder / "spec.yaml"
    path.write_text(BASE + network)
    (one,) = plan(load(path, ["devices.workers=10", *overrides]))
    return one


def of_workers(network: Network, workers: list[str], *, up: bool) -> dict[str, Share]:
    """Return each worker's share if all send to the server at once, or receive from it."""
    pairs = [(one, "server") if up else ("server", one) for one in workers]
    return dict(zip(workers, shares_of(network, pairs), strict=True))


def test_each_worker_is_limited_by_the_link_that_is_full() -> None:
    mbit = 10**6
    network = Network(
        (
            Link("server", 0, downlink=Shape(100 * mbit)),
            Link("a", 1, Shape(10 * mbit)),
            Link("b", 2, Shape(90 * mbit), router="x"),
            Link("c", 3, Shape(90 * mbit), router="x"),
            Link("d", 4, Shape(90 * mbit)),
            Link("x", 5, Shape(30 * mbit)),
        )
    )
    found = of_workers(network, ["a", "b", "c", "d"], up=True)
    by_link = {
        name: (share.rate / mbit, share.link and share.link.node) for name, share in found.items()
    }
    assert by_link == {"a": (10, "a"), "b": (15, "x"), "c": (15, "x"), "d": (60, "server")}
    down = of_workers(network, ["a", "d"], up=False)
    assert {share.rate for share in down.values()} == {math.inf}
    assert {share.link for share in down.values()} == {None}


def test_the_plan_says_what_each_gets(tmp_path: Path) -> None:
    assert plan_routes.describe(planned(tmp_path, CLUSTERS)) == [
        "4 workers ─ village ─ core ─ server: ↑ 5 Mbit/s (uplink of village)  "
        "↓ 2 Mbit/s (downlink of village)",
        "6 workers ─ campus ─ core ─ server: ↑ 6.667 Mbit/s (the server's downlink)  ↓ no limit",
    ]


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_both_clocks_have_the_same_routes_and_shares(tmp_path: Path, clock: str) -> None:
    lines = plan_routes.records(planned(tmp_path, CLUSTERS, f"clock={clock}"))
    assert lines == plan_routes.records(planned(tmp_path, CLUSTERS))


def test_routes_of_one_bottleneck_are_one_line_with_what_they_share(tmp_path: Path) -> None:
    graph = "network: {uplink: 20mbit, graph: {topohub: sndlib/germany50, rate: 30mbit}}\n"
    first, *_ = plan_routes.describe(planned(tmp_path, graph, "devices.workers=40"))
    assert " routes ─ " in first and " ─ Giessen ─ core ─ server: " in first
    assert "(link " in first


def test_peers_have_routes_between_each_other(tmp_path: Path) -> None:
    network = "network: {uplink: 20mbit, downlink: 50mbit}\n"
    (line,) = plan_routes.describe(planned(tmp_path, network, "algorithms=[all-to-all]"))
    # Nine conversations of each peer, at once in both directions, share its uplink.
    assert line == ("45 conversations ─ core ─ peers: ↑↓ 2.222 Mbit/s (own uplink)")


def test_of_too_many_peers_only_routes_are_said(tmp_path: Path) -> None:
    network = "network: {uplink: 20mbit}\n"
    one = planned(tmp_path, network, "algorithms=[all-to-all]", "devices.workers=100")
    assert plan_routes.describe(one) == ["4,950 conversations ─ core ─ peers: ↑↓ not computed"]

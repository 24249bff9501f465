"""The workers' shares of links, and the lines about them in ``testbed plan``."""

import math
from pathlib import Path

import pytest

from testbed.cli import plan_shares
from testbed.experiment.load import load
from testbed.network.graph import Network
from testbed.network.links import Link, Shape
from testbed.planning.bottlenecks import shares
from testbed.planning.plan import Plan, plan
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
    found = shares(network, ["a", "b", "c", "d"], up=True)
    by_link = {
        name: (share.rate / mbit, share.link and share.link.node) for name, share in found.items()
    }
    assert by_link == {"a": (10, "a"), "b": (15, "x"), "c": (15, "x"), "d": (60, "server")}
    down = shares(network, ["a", "d"], up=False)
    assert {share.rate for share in down.values()} == {math.inf}
    assert {share.link for share in down.values()} == {None}


def test_the_plan_says_what_each_gets(tmp_path: Path) -> None:
    up, down = plan_shares.describe(planned(tmp_path, CLUSTERS))
    assert up.split("once")[1].strip() == (
        "5 Mbit/s for 4 workers (link of village), 6.667 Mbit/s for 6 workers (link of server)"
    )
    assert down.split("parameters")[1].strip() == (
        "2 Mbit/s for 4 workers (link of village), 6 workers without a limit"
    )


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_both_clocks_have_the_same_shares(tmp_path: Path, clock: str) -> None:
    lines = plan_shares.describe(planned(tmp_path, CLUSTERS, f"clock={clock}"))
    assert lines == plan_shares.describe(planned(tmp_path, CLUSTERS))


def test_links_between_routers_are_named_by_both_ends(tmp_path: Path) -> None:
    graph = "network: {uplink: 20mbit, graph: {topohub: sndlib/germany50, rate: 30mbit}}\n"
    up, _ = plan_shares.describe(planned(tmp_path, graph, "devices.workers=40"))
    assert " (link " in up and " to Giessen)" in up.replace("Giessen to ", "X to Giessen)")


def test_without_shared_links_nothing_is_said(tmp_path: Path) -> None:
    assert plan_shares.describe(planned(tmp_path, "network: {uplink: 1mbit}\n")) == []

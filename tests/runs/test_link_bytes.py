"""The rows of the table of links: each direction with its rate as asked, and its use of it."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from testbed.device_names import EVALUATOR_NAME
from testbed.planning.plan import Plan
from testbed.results.reading.recorded_tables import read_over_links
from testbed.runs.link_bytes import LinkCounts, over_routes, rows, unasked_drops
from testbed.telemetry.end_tables import write_links
from tests.planning.test_routes import CLUSTERS, planned


@pytest.fixture(params=["wall", "virtual"])
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> Plan:
    return planned(tmp_path, CLUSTERS, f"clock={request.param}")


def test_bytes_pass_every_link_of_their_route(plan: Plan) -> None:
    sent = {("worker-0", "server"): 100, ("worker-9", "server"): 7, ("server", "worker-0"): 50}
    found = over_routes(plan.network, sent, EVALUATOR_NAME)
    named = {
        (plan.network.links_by_index[index].node, up): counts.bytes
        for (index, up), counts in found.items()
        if counts.bytes
    }
    assert named == {
        ("worker-0", True): 100,
        ("campus", True): 100,
        ("worker-9", True): 7,
        ("village", True): 7,
        ("server", False): 107,
        ("server", True): 50,
        ("campus", False): 50,
        ("worker-0", False): 50,
    }
    assert len(found) == 2 * (len(plan.links) - 1)  # all but the evaluator's


def test_the_use_is_of_the_rate_as_asked_under_either_clock(plan: Plan, tmp_path: Path) -> None:
    counted = {
        (0, False): LinkCounts(15_000_000, 10_000, 3),
        (0, True): LinkCounts(1_000),
    }
    write_links(tmp_path, rows(plan, counted, 4.0))
    up, down = pq.read_table(tmp_path / "links.parquet").to_pylist()
    assert (up["node"], up["router"], up["device"]) == ("server", "core", True)
    assert (up["direction"], up["rate"], up["utilisation"], up["frames"]) == (
        "uplink",
        None,
        None,
        None,
    )
    assert (down["rate"], down["utilisation"], down["seconds"]) == (60_000_000, 0.5, 4.0)
    assert (down["frames"], down["dropped"]) == (10_000, 3)


@pytest.mark.parametrize("asked", ["loss=1%", "queue={up: 64kB}"])
def test_drops_that_were_asked_for_are_no_warning(asked: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, CLUSTERS, "clock=wall", f"network.clusters.0.{asked}")
    campus = next(link.index for link in plan.links if link.node == "campus")
    assert unasked_drops(plan, {(campus, True): LinkCounts(100, 2, 5)}) is None


def test_drops_that_nobody_asked_for_are_told(plan: Plan) -> None:
    none = {(link.index, up): LinkCounts(100, 2, 0) for link in plan.links for up in (True, False)}
    assert unasked_drops(plan, none) is None
    campus = next(link.index for link in plan.links if link.node == "campus")
    one = unasked_drops(plan, none | {(0, False): LinkCounts(100, 2, 5)})
    assert one is not None and one.startswith("the downlink of server dropped frames (5 or more")
    more = {(0, False): LinkCounts(100, 2, 5), (campus, True): LinkCounts(100, 2, 1_200)}
    two = unasked_drops(plan, none | more)
    assert two is not None
    assert two.startswith(
        "2 directions of links, the uplink of campus most of all, dropped frames (1,200"
    )


def test_without_time_there_is_no_use(plan: Plan) -> None:
    _, row = rows(plan, {(0, False): LinkCounts(10)}, 0.0)
    assert row.bytes == 10 and row.utilisation is None


def test_of_a_link_that_was_counted_in_part_the_other_direction_is_unknown(plan: Plan) -> None:
    """Only the host of a device counts its uplink, and that host may be lost."""
    link = next(one for one in plan.links if one.node == "worker-0")
    up, down = rows(plan, {(link.index, False): LinkCounts(10, 1, 0)}, 2.0)
    assert (up.direction, up.rate) == ("uplink", plan.asked_network.shape((link.index, True)).rate)
    assert (up.bytes, up.frames, up.dropped, up.utilisation) == (None, None, None, None)
    assert (down.direction, down.bytes) == ("downlink", 10)


def test_what_was_written_is_read(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "traffic").mkdir()
    counted = {(0, True): LinkCounts(1, 1, 0), (0, False): LinkCounts(2), (2, False): LinkCounts(3)}
    written = list(rows(plan, counted, 1.5))
    write_links(tmp_path / "traffic", written)
    assert [str(use)[len("LinkBytes") :] for use in read_over_links(tmp_path)] == [
        str(row)[len("LinkBytes") :] for row in written
    ]

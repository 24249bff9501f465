"""Simulations with aggregators between the workers and the server."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from testbed.simulation.served_system import ServedSystem
from tests.simulation.test_simulated import Simulated, assert_differ_by_rounding
from tests.simulation.test_simulated import settings as star_settings

WORKERS = 6
UPDATES = 40
UNSHAPED: dict[str, str] = {}
OWN = {"uplink": "2mbit", "downlink": "10mbit", "delay": "5ms"}
UP = {"uplink": "4mbit", "downlink": "8mbit", "delay": "10ms"}

NETWORKS = {"unshaped": (UNSHAPED, UNSHAPED), "own links": (OWN, UNSHAPED), "shared": (OWN, UP)}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "all": {},
    "k": {"wait_for": 2},
    "within": {"within": "120ms"},
    "asynchronous": {"server": "asynchronous", "wait_for": 2},
    "compressed": {"ratio": 0.05, "error_feedback": True},
    "union": {"ratio": 0.05, "aggregator_ratio": 1},
    "compressed above": {"aggregator_ratio": 0.05, "error_feedback": True},
}


def run(
    algorithm: dict[str, Any],
    sizes: tuple[int, ...] = (3, 3),
    network: str = "unshaped",
    more_devices: dict[str, Any] | None = None,
    region: int = 0,
    **changes: Any,
) -> Simulated:
    """Simulate a run whose clusters have as many workers as ``sizes`` says.

    Args:
        region: the number of clusters, the first ones, that are inside another one.
    """
    own, up = NETWORKS[network]
    clusters = [
        {"name": f"c{i}", "number": size, **up, **({"inside": "region"} if i < region else {})}
        for i, size in enumerate(sizes)
    ]
    clusters += [{"name": "region", **up}] if region else []
    return Simulated(
        star_settings(
            "asgd",
            algorithms=[algorithm],
            devices={"workers": sum(sizes), **(more_devices or {})},
            network={**own, "clusters": clusters},
            **changes,
        )
    )


def hierarchical(
    options: dict[str, Any], sizes: tuple[int, ...] = (3, 3), network: str = "unshaped", **more: Any
) -> Simulated:
    return run({"name": "hierarchical", **options}, sizes, network, **more)


@functools.cache
def simulated(algorithm: str, network: str) -> Simulated:
    """Return a run that many tests look at, and none changes."""
    return hierarchical(ALGORITHMS[algorithm], network=network)


@pytest.mark.parametrize("more", [{}, {"wait_for": 4}], ids=["all", "k"])
def test_one_cluster_leads_to_the_bits_of_synchronous_sgd(more: dict[str, int]) -> None:
    tree = hierarchical(more, (WORKERS,))
    star = run({"name": "sync-sgd", **more}, (WORKERS,))
    assert tree.digest == star.digest
    assert [one.digest for one in tree.checkpoints] == [one.digest for one in star.checkpoints]
    applied = star.rows[star.rows["applied"]]
    last_of_each = applied["time"][(more.get("wait_for") or WORKERS) - 1 :: more.get("wait_for", 6)]
    assert tree.rows["time"].tolist() == last_of_each.tolist()


@pytest.mark.parametrize("network", NETWORKS)
def test_one_cluster_leads_to_the_same_bits_whatever_the_number_of_servers(network: str) -> None:
    """Each of three servers has a third of every sum, and all are at the same versions."""
    alone = hierarchical({}, (WORKERS,), network)
    several = hierarchical({}, (WORKERS,), network, more_devices={"servers": 3})
    assert several.digest == alone.digest
    assert several.after["payload_bytes"] == alone.after["payload_bytes"]
    assert len(several.rows) == 3 * len(alone.rows)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_way_to_combine_works_in_a_region_of_several_servers(algorithm: str) -> None:
    one, two = (
        hierarchical(
            ALGORITHMS[algorithm], (1, 3, 2), "shared", region=2, more_devices={"servers": 2}
        )
        for _ in range(2)
    )
    assert one.system.version == UPDATES
    assert one.digest == two.digest
    ledgers = one.system.own_summary()
    assert list(ledgers["servers"]) == ["server-0", "server-1"]
    assert len(ledgers["aggregators"]) == 4
    assert set(one.rows["worker"].tolist()) == {WORKERS + 2, WORKERS + 3}


@pytest.mark.parametrize("algorithm", ["all", "asynchronous", "compressed"])
def test_several_processors_change_no_bit_of_a_region_of_several_servers(algorithm: str) -> None:
    alone, several = (
        hierarchical(
            *(ALGORITHMS[algorithm], (3, 3), "own links"),
            region=1,
            more_devices={"servers": 2},
            simulation={"processors": processors},
        )
        for processors in (1, 2)
    )
    assert several.digest == alone.digest
    assert several.rows["time"].tolist() == alone.rows["time"].tolist()


def test_a_region_around_one_cluster_leads_to_the_same_bits() -> None:
    tree = hierarchical({}, (WORKERS,), region=1)
    one = hierarchical({}, (WORKERS,))
    assert tree.digest == one.digest
    assert tree.rows["time"].tolist() == one.rows["time"].tolist()
    assert tree.rows["message_bytes"].tolist() == one.rows["message_bytes"].tolist()


@pytest.mark.parametrize("network", NETWORKS)
def test_a_region_pushes_one_sum_for_its_clusters(network: str) -> None:
    tree = hierarchical({}, (2, 2, 2), network, region=2)
    flat = hierarchical({}, (2, 2, 2), network)
    assert (len(tree.rows), len(flat.rows)) == (2 * UPDATES, 3 * UPDATES)
    assert tree.system.version == flat.system.version == UPDATES
    np.testing.assert_allclose(tree.system.parameters, flat.system.parameters, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_way_to_combine_works_in_a_region(algorithm: str) -> None:
    one = hierarchical(ALGORITHMS[algorithm], (1, 3, 2), "shared", region=2)
    assert one.system.version == UPDATES


def test_clusters_of_one_device_lead_to_the_bits_of_asgd() -> None:
    tree = hierarchical({"server": "asynchronous"}, (1,) * WORKERS)
    star = run({"name": "asgd"}, (1,) * WORKERS)
    assert tree.digest == star.digest
    for column in ("iteration", "base_version", "staleness", "time", "loss"):
        assert tree.rows[column].tolist() == star.rows[column].tolist()
    assert (tree.rows["worker"] - WORKERS).tolist() == star.rows["worker"].tolist()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_seed_gives_the_same_bits(algorithm: str) -> None:
    one, two = simulated(algorithm, "shared"), hierarchical(ALGORITHMS[algorithm], network="shared")
    assert one.digest == two.digest
    assert one.rows.tobytes() == two.rows.tobytes()
    assert (one.before, one.after) == (two.before, two.after)
    assert one.system.own_summary() == two.system.own_summary()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rows_and_diagnostics_are_those_of_the_servers_updates(
    algorithm: str, network: str
) -> None:
    one = simulated(algorithm, network)
    rows = one.rows
    assert one.system.version == UPDATES
    assert (np.diff(rows["time"]) >= 0).all()
    assert set(rows["worker"].tolist()) == {WORKERS, WORKERS + 1}
    assert rows["applied"].all()
    pushes = 1 if algorithm == "asynchronous" else 2
    assert rows["iteration"].tolist() == np.repeat(np.arange(1, UPDATES + 1), pushes).tolist()
    combined = [count for _, count in one.notes.diagnoses]
    assert len(combined) == UPDATES
    if algorithm == "within":
        # Over slow links nothing comes within the time, and each first update is pushed alone.
        assert (len(set(combined)) > 1) == (network == "unshaped")
        assert min(combined) >= 2
        assert max(combined) <= WORKERS
    else:
        expected = {"k": 4, "asynchronous": 2}.get(algorithm, WORKERS)
        assert set(combined) == {expected}
    assert [c.version for c in one.checkpoints] == [0, 10, 20, 30, 40]
    assert one.checkpoints[-1].digest == one.digest


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_bytes_at_the_server_follow_from_its_rows(algorithm: str, network: str) -> None:
    one = simulated(algorithm, network)
    rows = one.rows
    payload = int(rows["payload_bytes"].sum())
    ledger = one.checkpoints[-1].ledger
    assert ledger["payload_bytes"] == payload
    assert ledger["message_bytes"] == 2 * 96 + payload + 32 * len(rows) + 32 * (len(rows) - 1)
    if algorithm in ("all", "k", "within", "asynchronous"):
        assert set(rows["payload_bytes"].tolist()) == {one.size}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_ingress_of_server_and_aggregators_is_counted_apart(algorithm: str) -> None:
    one = simulated(algorithm, "shared")
    sent = one.system.over_links()
    aggregators = one.system.own_summary()["aggregators"]
    assert set(aggregators) == {"aggregator-0", "aggregator-1"}
    for name, ledger in aggregators.items():
        entered = sum(
            size for (one, to), size in sent.items() if to == name and one.startswith("worker")
        )
        assert entered == ledger["wire_bytes"] > ledger["message_bytes"] > ledger["payload_bytes"]
    into_server = sum(size for (_, to), size in sent.items() if to == "server")
    assert into_server == one.after["wire_bytes"]
    assert {(to, name) for name, to in sent} == sent.keys()


def test_an_edge_divides_the_servers_ingress_by_the_size_of_its_cluster() -> None:
    tree, star = hierarchical({}, (3, 3)), run({"name": "sync-sgd"}, (3, 3))
    edge, plain = (one.checkpoints[-1].ledger["payload_bytes"] for one in (tree, star))
    assert plain == 3 * edge
    into = tree.system.own_summary()["aggregators"]
    assert sum(one["payload_bytes"] for one in into.values()) >= plain


def late(algorithm: str, network: str) -> list[int]:
    aggregators = simulated(algorithm, network).system.own_summary()["aggregators"]
    return [one["late"] for one in aggregators.values()]


def test_the_late_updates_of_a_cluster_are_counted_at_its_aggregator() -> None:
    assert min(late("k", "own links")) > 0
    assert late("all", "shared") == [0, 0]


def test_ten_clusters_of_different_sizes() -> None:
    sizes = tuple(1 + i % 3 for i in range(10))
    one = hierarchical({}, sizes, "shared")
    assert one.system.version == UPDATES
    assert {count for _, count in one.notes.diagnoses} == {sum(sizes)}
    assert len(one.rows) == 10 * UPDATES


def test_without_shaped_shared_links_flows_and_lines_take_the_same_time() -> None:
    """A link of the server with room for all makes the transfers flows, and changes nothing else."""
    for algorithm in ("all", "k", "asynchronous"):
        lines = simulated(algorithm, "own links")
        own, up = NETWORKS["own links"]
        clusters = [{"name": f"c{i}", "number": 3, **up} for i in range(2)]
        network = {**own, "clusters": clusters, "server": {"uplink": "100gbit"}}
        flows = Simulated(
            star_settings(
                "asgd",
                algorithms=[{"name": "hierarchical", **ALGORITHMS[algorithm]}],
                devices={"workers": WORKERS},
                network=network,
            )
        )
        assert isinstance(flows.system, ServedSystem)
        assert flows.system.clock.transfers is not None
        assert flows.digest == lines.digest
        # At 100 Gbit/s the parameters take some microseconds.
        np.testing.assert_allclose(flows.rows["time"], lines.rows["time"], rtol=1e-4)


def test_a_combination_lasts_no_longer_than_its_time_if_an_update_has_come() -> None:
    """Between two updates pass the time limit and, at most, one more computation."""
    times = np.unique(simulated("within", "unshaped").rows["time"])
    assert (np.diff(times) >= 0).all()
    limited = hierarchical({"within": "120ms"}).rows["time"][-1]
    unlimited = hierarchical({}).rows["time"][-1]
    assert limited < unlimited


def test_parameters_may_be_sent_as_changes() -> None:
    full, changed = (
        hierarchical({"ratio": 0.01}, network="own links", pulls=pulls)
        for pulls in ("full", "changed")
    )
    sent = [sum(one.system.over_links().values()) for one in (full, changed)]
    assert sent[1] < sent[0]
    # The links are as fast, and the messages shorter: times differ, sums of a round do not depend on
    # them but for the order in which they are added up.
    assert changed.system.version == full.system.version == UPDATES


@pytest.mark.parametrize("encoding", ["compact-16", "compact-8"])
def test_what_the_encoding_rounds_away_is_kept_where_there_is_error_feedback(encoding: str) -> None:
    one = hierarchical(ALGORITHMS["compressed"], encoding=encoding)
    other = hierarchical(ALGORITHMS["compressed"])
    assert one.system.version == UPDATES
    assert one.after["payload_bytes"] < other.after["payload_bytes"]


def test_versions_are_kept_as_long_as_they_are_needed() -> None:
    for name in itertools.product(ALGORITHMS, NETWORKS):
        system = simulated(*name).system
        assert isinstance(system, ServedSystem)
        assert len(system._devices._compute.versions) <= WORKERS + 2


@pytest.mark.parametrize("algorithm", ["k", "asynchronous"])
def test_batched_gradients_change_rounding_and_nothing_else(algorithm: str) -> None:
    options = ALGORITHMS[algorithm]
    batched = hierarchical(options, network="shared", simulation={"batched": True})
    assert batched.settings.batched
    assert_differ_by_rounding(batched, simulated(algorithm, "shared"))

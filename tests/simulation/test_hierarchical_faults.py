"""Faults, presence and suspicions of devices under aggregators."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from testbed.device_names import is_server
from tests.simulation.test_hierarchical import ALGORITHMS, NETWORKS, UPDATES, WORKERS
from tests.simulation.test_hierarchical import run as run_in_clusters
from tests.simulation.test_simulated import Simulated

ONE = {"who": {"devices": ["worker-1"]}}
TWO = {"who": {"devices": ["worker-1", "worker-4"]}}
FAULTS: dict[str, dict[str, Any]] = {
    "freeze": ONE | {"when": {"time": "333ms"}, "how": "freeze", "lasting": "700ms"},
    "freeze for good": TWO | {"when": {"time": "333ms"}, "how": "freeze"},
    "kill": TWO | {"when": {"time": "333ms"}, "how": "kill", "lasting": "700ms"},
    "kill for good": TWO | {"when": {"iteration": 7}, "how": "kill"},
    "stop-network": ONE | {"when": {"time": "333ms"}, "how": "stop-network", "lasting": "700ms"},
    "partition": TWO | {"when": {"iteration": 10}, "how": "partition", "lasting": "700ms"},
    "slow": ONE
    | {"when": {"time": "333ms"}, "how": {"kind": "slow", "factor": 5}, "lasting": "900ms"},
    "after pushes": {"when": {"probability": 0.1}, "how": "kill", "lasting": "300ms"},
    "again and again": {"when": {"mean_time": "600ms"}, "how": "kill", "lasting": "200ms"},
}
PRESENCE: list[dict[str, Any]] = [
    {"name": "core", "number": 3},
    {"name": "late", "number": 1, "arrives": "700ms"},
    {
        "name": "mobile",
        "number": 2,
        "leaves": {"distribution": "exponential", "mean": "500ms"},
        "returns": {"distribution": "exponential", "mean": "300ms"},
    },
]


def run(
    algorithm: dict[str, Any],
    sizes: tuple[int, ...],
    *faults: dict[str, Any],
    network: str = "unshaped",
    **devices: Any,
) -> Simulated:
    devices.setdefault("suspect_after", "250ms")
    return run_in_clusters(algorithm, sizes, network, faults=list(faults), more_devices=devices)


def same_updates(tree: Simulated, star: Simulated, columns: tuple[str, ...]) -> None:
    """Check that both made the same updates at the same times, to the bit."""
    assert tree.system.version == star.system.version == UPDATES
    assert tree.digest == star.digest
    assert [one.digest for one in tree.checkpoints] == [one.digest for one in star.checkpoints]
    # A device's push reaches its aggregator before the server: a fault after it may strike at the
    # version before, and after the last one of the run.
    mine, theirs = ([one | {"iteration": 0} for one in run.faults] for run in (tree, star))
    assert mine[: len(theirs)] == theirs
    # An aggregator's version may be older than the server's.
    assert [one[:-1] for one in tree.notes.noticed] == [one[:-1] for one in star.notes.noticed]
    of_tree, of_star = (one.rows[one.rows["applied"]] for one in (tree, star))
    for column in columns:
        assert of_tree[column].tolist() == of_star[column].tolist()


@pytest.mark.parametrize("fault", FAULTS)
def test_clusters_of_one_device_lead_to_the_bits_of_asgd_whatever_happens(fault: str) -> None:
    tree = run({"name": "hierarchical", "server": "asynchronous"}, (1,) * WORKERS, FAULTS[fault])
    star = run({"name": "asgd"}, (1,) * WORKERS, FAULTS[fault])
    assert tree.faults
    same_updates(tree, star, ("iteration", "base_version", "staleness", "time", "loss"))


@pytest.mark.parametrize("fault", FAULTS)
def test_clusters_of_one_device_lead_to_the_bits_of_synchronous_sgd_whatever_happens(
    fault: str,
) -> None:
    tree = run({"name": "hierarchical"}, (1,) * WORKERS, FAULTS[fault])
    star = run({"name": "sync-sgd"}, (1,) * WORKERS, FAULTS[fault])
    assert tree.faults
    same_updates(tree, star, ("iteration", "base_version", "staleness", "time", "loss"))


@pytest.mark.parametrize(
    "fault", [name for name, one in FAULTS.items() if one["when"].keys() & {"time", "mean_time"}]
)
@pytest.mark.parametrize(
    ("algorithm", "alike"),
    [
        ({"name": "hierarchical"}, {"name": "sync-sgd"}),
        ({"name": "hierarchical", "server": "asynchronous"}, {"name": "asgd"}),
    ],
    ids=["synchronous", "asynchronous"],
)
def test_clusters_of_one_device_are_workers_of_several_servers_whatever_happens(
    algorithm: dict[str, Any], alike: dict[str, Any], fault: str
) -> None:
    """A fault at a version strikes when one server has its part, and an aggregator has sent all."""
    tree, star = (run(one, (1,) * WORKERS, FAULTS[fault], servers=3) for one in (algorithm, alike))
    assert tree.faults
    assert tree.system.version == star.system.version == UPDATES
    assert tree.digest == star.digest
    assert [one.digest for one in tree.checkpoints] == [one.digest for one in star.checkpoints]
    of_tree, of_star = (one.rows[one.rows["applied"]] for one in (tree, star))
    for column in ("server", "iteration", "base_version", "staleness", "time", "loss"):
        assert of_tree[column].tolist() == of_star[column].tolist()


@pytest.mark.parametrize("fault", FAULTS)
def test_one_cluster_leads_to_the_bits_of_synchronous_sgd_whatever_happens(fault: str) -> None:
    tree = run({"name": "hierarchical", "wait_for": 4}, (WORKERS,), FAULTS[fault])
    star = run({"name": "sync-sgd", "wait_for": 4}, (WORKERS,), FAULTS[fault])
    assert tree.faults
    same_updates(tree, star, ())


@pytest.mark.parametrize(
    ("algorithm", "alike"),
    [
        ({"name": "hierarchical"}, {"name": "sync-sgd"}),
        ({"name": "hierarchical", "server": "asynchronous"}, {"name": "asgd"}),
    ],
    ids=["synchronous", "asynchronous"],
)
def test_devices_arrive_and_leave_as_without_aggregators(
    algorithm: dict[str, Any], alike: dict[str, Any]
) -> None:
    tree, star = (run(one, (1,) * WORKERS, classes=PRESENCE) for one in (algorithm, alike))
    assert {one["away"] for one in tree.faults} == {"not-arrived", "left"}
    same_updates(tree, star, ("iteration", "base_version", "staleness", "time", "loss"))


@pytest.mark.parametrize("servers", [1, 3])
def test_a_cluster_that_is_gone_is_not_waited_for_and_comes_back(servers: int) -> None:
    """While all devices of the first cluster are away, updates are those of the other one's three."""
    away = {
        "who": {"devices": ["worker-0", "worker-1", "worker-2"]},
        "when": {"time": "1s"},
        "how": "kill",
        "lasting": "1500ms",
    }
    one = run({"name": "hierarchical"}, (3, 3), away, suspect_after=None, servers=servers)
    assert one.system.version == UPDATES
    for server in range(servers):
        _assert_gone_and_back(one.rows[one.rows["server"] == server])


def _assert_gone_and_back(rows: Any) -> None:
    applied, reports = rows[rows["applied"]], rows[~rows["applied"]]
    first = applied["worker"] == WORKERS
    during = (applied["time"] > 1) & (applied["time"] < 2.5)
    assert not (first & during).any()
    assert (~first & during).sum() > 3
    assert (first & (applied["time"] > 2.5)).any()
    assert reports["worker"].tolist() == [WORKERS]
    assert reports["payload_bytes"].tolist() == [0]
    assert 1 <= reports["time"][0] < 2.5  # with the next parameters, if it had combined something


def test_a_killed_devices_push_is_late_at_its_aggregator() -> None:
    """A push that was under way when its device was killed is counted where it was to arrive."""
    kill = ONE | {"when": {"probability": 0.3}, "how": "kill", "lasting": "50ms"}
    struck, alone = (
        run({"name": "hierarchical"}, (3, 3), *faults, network="shared", suspect_after=None)
        for faults in ((kill,), ())
    )
    for one in (struck, alone):
        aggregators = one.system.own_summary()["aggregators"]
        pushed = one.rows["payload_bytes"].sum()
        assert one.after["payload_bytes"] >= pushed
        assert all(own["payload_bytes"] % one.size == 0 for own in aggregators.values())
    assert struck.faults
    assert struck.system.version == alone.system.version == UPDATES


@examples(max_examples=8, deadline=None)
@given(
    st.sampled_from(sorted(ALGORITHMS)),
    st.sampled_from(sorted(NETWORKS)),
    st.sampled_from([(3, 3), (1, 5), (2, 1, 3), (6,)]),
    st.fixed_dictionaries(
        {"suspect_after": st.sampled_from([None, "200ms"]), "servers": st.integers(1, 3)}
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["kill", "freeze", "stop-network", "slow"]),
            # A push takes 1.8 s of a shared link: devices killed every 500 ms never end one.
            st.sampled_from([{"probability": 0.1}, {"mean_time": "3s"}, {"iteration": 9}]),
            st.integers(50, 1000),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_random_faults_leave_the_ledgers_consistent(
    algorithm: str,
    network: str,
    sizes: tuple[int, ...],
    devices: dict[str, Any],
    strikes: list[tuple[str, dict[str, Any], int]],
) -> None:
    rules = [
        {
            "when": when,
            "how": {"kind": "slow", "factor": 3, "uplink": "500kbit"} if how == "slow" else how,
            "lasting": f"{away}ms",
        }
        for how, when, away in strikes
    ]
    options = {"name": "hierarchical", **ALGORITHMS[algorithm]}
    one = run(options, sizes, *rules, network=network, **devices)
    rows, aggregators = one.rows, one.system.own_summary()["aggregators"]
    applied = rows[rows["applied"]]
    # Devices that are killed all the time by two rules may never end a push of the shared link.
    assert one.system.version == UPDATES or one.system.clock.futile
    assert (np.diff(rows["time"]) >= 0).all()
    for server in range(devices["servers"]):
        made = applied["iteration"][applied["server"] == server].tolist()
        assert made == sorted(made)
    assert set(rows["worker"].tolist()) <= set(range(WORKERS, WORKERS + len(sizes)))
    # No aggregator pushes twice for a version, and none for a later one before an earlier one.
    for worker, server in {(row["worker"], row["server"]) for row in applied}:
        whose = (applied["worker"] == worker) & (applied["server"] == server)
        assert (np.diff(applied["base_version"][whose]) > 0).all()
    assert one.after["payload_bytes"] >= rows["payload_bytes"].sum()
    for own in aggregators.values():
        assert own["wire_bytes"] > own["message_bytes"] > own["payload_bytes"]
    sent = one.system.over_links()
    entered = sum(size for (_, receiver), size in sent.items() if is_server(receiver))
    assert entered == one.after["wire_bytes"]
    for name, own in aggregators.items():
        below = {receiver: size for (receiver, by), size in sent.items() if by == name}
        assert own["wire_bytes"] == sum(size for of, size in below.items() if not is_server(of))

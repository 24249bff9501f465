"""Simulations with several servers, of which each has a slice of the parameters."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.simulation.test_simulated import (
    NETWORKS,
    SERVED,
    UPDATES,
    WORKERS,
    Simulated,
    assert_differ_by_rounding,
    settings,
)

SHAPED = NETWORKS["shaped"]
FAST = {"uplink": "50mbit", "downlink": "50mbit", "delay": "5ms"}


def with_servers(algorithm: str, servers: int, workers: int = WORKERS, **changes: Any) -> Simulated:
    devices = {"workers": workers, "servers": servers} | changes.pop("devices", {})
    return Simulated(settings(algorithm, devices=devices, **changes))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ["asgd", "sync-all"])
def test_what_one_worker_learns_does_not_depend_on_the_number_of_servers(
    algorithm: str, network: str
) -> None:
    """Each parameter is computed by itself in a dense update, whatever slice it is in."""
    several = with_servers(algorithm, 5, 1, network=NETWORKS[network])
    alone = with_servers(algorithm, 1, 1, network=NETWORKS[network])
    assert several.digest == alone.digest
    assert [one.digest for one in several.checkpoints] == [one.digest for one in alone.checkpoints]
    assert several.before["payload_bytes"] == alone.before["payload_bytes"]


@pytest.mark.parametrize("allocation", ["tensors", "layers"])
@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "asgd"},
        {"name": "adacomp", "ratio": 0.05, "pulls": "changed"},
        {"name": "downpour", "push_every": 2, "fetch_every": 3},
        {"name": "easgd", "exchange_every": 2},
        {"name": "sync-sgd"},
    ],
    ids=lambda algorithm: algorithm["name"],
)
def test_nor_does_it_depend_on_which_parameters_a_server_holds(
    algorithm: dict[str, Any], allocation: str
) -> None:
    """A worker selects from all parameters, tensor by tensor, before the update is cut."""
    how: dict[str, Any] = {"network": SHAPED, "algorithms": [algorithm]}
    alone, ranges = (with_servers("asgd", servers, 1, **how) for servers in (1, 3))
    dealt = with_servers("asgd", 3, 1, devices={"allocation": allocation}, **how)
    assert dealt.digest == ranges.digest == alone.digest
    assert [one.digest for one in dealt.checkpoints] == [one.digest for one in alone.checkpoints]
    if algorithm["name"] != "adacomp":  # whose indices cost bytes
        assert dealt.before["payload_bytes"] == alone.before["payload_bytes"]
        sizes = [one["payload_bytes"] for one in dealt.system.own_summary()["servers"].values()]
        assert max(sizes) > 0.9 * sum(sizes)  # the largest tensor has nearly all parameters


@pytest.mark.parametrize("allocation", ["ranges", "tensors"])
@pytest.mark.parametrize("protocol", ["pull", "push-and-wait", "push-and-interrupt"])
def test_an_update_of_all_workers_does_not_depend_on_the_number_of_servers(
    protocol: str, allocation: str
) -> None:
    algorithm = {"name": "sync-sgd", "wait_for": WORKERS, "protocol": protocol}
    how: dict[str, Any] = {"network": SHAPED, "algorithms": [algorithm]}
    one, three = (
        with_servers("asgd", servers, devices={"allocation": allocation}, **how)
        for servers in (1, 3)
    )
    assert three.digest == one.digest


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", SERVED)
def test_each_server_makes_the_runs_updates_and_the_bytes_are_those_of_the_rows(
    algorithm: str, network: str
) -> None:
    run = with_servers(algorithm, 3, network=NETWORKS[network])
    rows = run.rows
    assert run.system.version == UPDATES
    assert (np.diff(rows["time"]) >= 0).all()
    for server in range(3):
        applied = rows[rows["applied"] & (rows["server"] == server)]
        assert applied["iteration"][-1] == UPDATES
    assert [one.version for one in run.checkpoints] == [0, 10, 20, 30, 40]
    assert run.checkpoints[-1].digest == run.digest
    assert rows["payload_bytes"].sum() <= run.before["payload_bytes"]
    servers = run.system.own_summary()["servers"]
    for key, value in run.checkpoints[-1].ledger.items():
        assert value == sum(ledger[key] for ledger in servers.values())
    # What is in no row came when its server had made all updates.
    late = run.after["payload_bytes"] - rows["payload_bytes"].sum()
    assert 0 <= late <= 4 * WORKERS * run.size


def test_of_a_run_that_is_cut_short_each_server_has_the_bytes_of_its_rows() -> None:
    """All workers freeze for good before the second version that is evaluated."""
    struck = {"when": {"time": "700ms"}, "how": "freeze"}
    run = with_servers("asgd", 3, network=SHAPED, faults=[struck])
    assert 0 < run.system.version < UPDATES
    told = run.system.own_summary()["servers"]
    for server, ledger in enumerate(told.values()):
        own = run.rows[run.rows["server"] == server]
        assert ledger["payload_bytes"] == own["payload_bytes"].sum() > 0
        assert ledger["message_bytes"] == own["message_bytes"].sum()


def test_the_servers_share_a_workers_link() -> None:
    """Three thirds of a push take as long as the whole, but for the headers of two more messages."""
    how: dict[str, Any] = {"network": SHAPED, "compute": {"distribution": "constant", "mean": "1s"}}
    alone, several = (with_servers("asgd", servers, 1, **how).rows for servers in (1, 3))
    assert several["time"][-1] == pytest.approx(alone["time"][-1], rel=1e-3)
    assert several["time"][-1] > alone["time"][-1]


@pytest.mark.parametrize(
    ("algorithm", "allocation"), [("asgd", "ranges"), ("push-and-wait", "tensors")]
)
def test_batched_gradients_change_rounding_and_nothing_else(
    algorithm: str, allocation: str
) -> None:
    how: dict[str, Any] = {"network": SHAPED, "devices": {"allocation": allocation}}
    serial, batched = (
        with_servers(algorithm, 3, simulation={"batched": batched}, **how)
        for batched in (False, True)
    )
    assert_differ_by_rounding(batched, serial)


@pytest.mark.parametrize("algorithm", ["asgd", "pull", "push-and-interrupt"])
def test_a_trace_that_does_not_change_is_a_rate(algorithm: str) -> None:
    steps = {"times": [0.0], "rates": [2_000_000]}
    traced = {"trace": {"content": {"uplink": steps, "downlink": steps}}}
    plain = {"uplink": "2mbit", "downlink": "2mbit"}
    one, two = (with_servers(algorithm, 3, network=how) for how in (plain, traced))
    assert (one.digest, one.after) == (two.digest, two.after)
    assert one.rows.tobytes() == two.rows.tobytes()


def test_a_step_of_a_trace_changes_the_rate_of_all_conversations() -> None:
    """Three thirds of a push take as long as the whole also where the rate changes on the way."""
    steps = {"times": [0.0, 0.4, 1.1], "rates": [300_000, 0, 1_000_000], "period": 1.7}
    network = {"trace": {"content": {"uplink": steps, "downlink": steps}}}
    how: dict[str, Any] = {
        "network": network,
        "compute": {"distribution": "constant", "mean": "1s"},
    }
    alone, several = (with_servers("asgd", servers, 1, **how).rows for servers in (1, 3))
    assert several["time"][-1] == pytest.approx(alone["time"][-1], rel=0.02)


@pytest.mark.parametrize("algorithm", ["asgd", "sync-all", "push-and-wait"])
def test_workers_arrive_and_leave_at_all_servers(algorithm: str) -> None:
    classes: list[dict[str, Any]] = [
        {"name": "core", "number": 2},
        {"name": "late", "number": 1, "arrives": "700ms"},
        {"name": "mobile", "number": 1, "leaves": "500ms", "returns": "400ms"},
    ]
    how: dict[str, Any] = {"network": FAST, "devices": {"classes": classes}}
    one, two = (with_servers(algorithm, 3, **how) for _ in range(2))
    rows = one.rows
    assert one.system.version == UPDATES
    assert (one.digest, one.after, one.faults) == (two.digest, two.after, two.faults)
    (late,) = (r for r in one.faults if r["away"] == "not-arrived" and r["phase"] == "end")
    assert late["time"] == 0.7
    for server in range(3):
        own = rows[rows["server"] == server]
        assert len(set(own[own["time"] < 0.7]["worker"].tolist())) <= 3
        assert set(own["worker"].tolist()) == set(range(WORKERS))


def test_a_servers_own_link_limits_its_part_only() -> None:
    slow = {"server": {"uplink": "1mbit", "downlink": "1mbit"}}
    one, four = (with_servers("asgd", servers, network=slow).rows["time"][-1] for servers in (1, 4))
    assert four == pytest.approx(one / 4, rel=0.1)


@pytest.mark.parametrize("algorithm", ["asgd", "adacomp", "push-and-wait", "push-and-interrupt"])
def test_what_workers_are_sent_after_changes_leads_to_the_same_model(algorithm: str) -> None:
    full, changed = (with_servers(algorithm, 3, pulls=pulls) for pulls in ("full", "changed"))
    assert changed.digest == full.digest


@pytest.mark.parametrize("algorithm", ["asgd", "push-and-wait"])
@pytest.mark.parametrize("how", ["kill", "freeze", "partition", "slow"])
def test_struck_workers_do_not_keep_the_others_from_the_end(algorithm: str, how: str) -> None:
    what = {"kind": "slow", "factor": 3} if how == "slow" else how
    rule = {"when": {"mean_time": "700ms"}, "how": what, "lasting": "400ms"}
    runs = [
        with_servers(
            algorithm,
            3,
            network=FAST,
            faults=[rule],
            devices={"suspect_after": "300ms"},
        )
        for _ in range(2)
    ]
    one, two = runs
    assert one.system.version == UPDATES
    assert one.faults
    assert (one.digest, one.after, one.faults) == (two.digest, two.after, two.faults)
    assert one.rows.tobytes() == two.rows.tobytes()


@examples(max_examples=8, deadline=None)
@given(
    st.sampled_from(SERVED),
    st.integers(2, 4),
    st.lists(
        st.tuples(
            st.sampled_from(["kill", "freeze", "stop-network"]),
            st.floats(0.05, 2.0),
            st.floats(0.05, 1.0),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_random_faults_leave_the_ledgers_consistent(
    algorithm: str, servers: int, strikes: list[tuple[str, float, float]]
) -> None:
    rules = [
        {"when": {"probability": 0.1}, "how": how, "lasting": f"{1000 * away:.0f}ms"}
        for how, _, away in strikes
    ]
    run = with_servers(algorithm, servers, network=FAST, faults=rules)
    rows = run.rows
    for server in range(servers):
        own = rows[rows["server"] == server]
        applied = own[own["applied"]]
        assert applied["iteration"].tolist() == sorted(applied["iteration"].tolist())
    assert run.after["payload_bytes"] >= rows["payload_bytes"].sum()


@pytest.mark.parametrize("allocation", ["ranges", "tensors", "layers"])
def test_shared_buffers_are_averaged_at_the_server_that_holds_them(allocation: str) -> None:
    how: dict[str, Any] = {
        "model": {"name": "resnet20", "buffers": "shared"},
        "training": {"updates": 3, "batch_size": 2, "learning_rate": 0.05},
        "evaluation": {"every": 3, "images": 2},
    }
    alone = with_servers("asgd", 1, 1, **how)
    several = with_servers("asgd", 3, 1, devices={"allocation": allocation}, **how)
    assert several.digest == alone.digest

"""What several servers report, put together."""

import numpy as np
import pytest

from testbed.messages.reports import (
    FinalParameters,
    ServerFinished,
    TrainingBegun,
    VersionEvaluated,
)
from testbed.orchestrator.ingress_of_servers import IngressOfServers, sum_of
from testbed.orchestrator.server_ingress import ServerIngress
from testbed.orchestrator.server_reports import Servers
from testbed.telemetry.update_rows import UPDATE
from testbed.training.slices import slices
from testbed.updates import Layout

LAYOUT = Layout(("a", "b", "c"), (1, 1, 1))


def test_the_run_is_as_far_as_its_slowest_server() -> None:
    servers = Servers(slices(LAYOUT, 2, "tensors"))
    assert not servers.listens(1)
    assert servers.listens(0)
    assert [servers.connected(0, 3), servers.connected(1, 2)] == [0, 2]
    assert [servers.reached(0, 5), servers.reached(1, 3), servers.reached(1, 9)] == [0, 3, 5]
    assert not servers.ends(1)
    assert servers.ends(0)
    servers.add_parameters(FinalParameters(0, np.array([2], np.float32).tobytes(), server=1))
    servers.add_parameters(FinalParameters(0, np.array([1, 3], np.float32).tobytes(), server=0))
    assert not servers.finishes(ServerFinished(9, 1, 2, {}, server=1))
    assert servers.finishes(ServerFinished(8, 1, 2, {}, server=0))
    assert servers.version == 8
    assert servers.parameters.tolist() == [1, 2, 3]


def test_times_count_from_the_first_servers_beginning() -> None:
    servers = Servers(slices(LAYOUT, 2))
    assert servers.begins(TrainingBegun(10.0, server=1))
    assert not servers.begins(TrainingBegun(10.5, server=0))
    rows = np.zeros(1, UPDATE)
    rows["host_time"] = rows["time"] = 1.0
    rows["payload_bytes"], rows["message_bytes"] = 7, 9
    assert servers.take(rows, 1)["time"] == 1.0
    assert servers.take(rows, 0)["host_time"] == pytest.approx(1.5)
    assert servers.pushed == [{"payload_bytes": 7, "message_bytes": 9}] * 2


def ledger(payload: int) -> dict[str, int]:
    return {"payload_bytes": payload, "message_bytes": 2 * payload, "run_time": payload}


def test_an_evaluation_sums_each_servers_bytes_at_its_own_moment() -> None:
    ingress = IngressOfServers([ServerIngress(), ServerIngress()])
    ingress.counted(0.0, [0, 0])
    ingress.evaluation_due(0, 4, 1.0, ledger(10), again=False)
    ingress.evaluated(VersionEvaluated(4, 50.0, 0.1, 0.0))
    ingress.counted(2.0, [2000, 4000])
    assert list(ingress.complete()) == []  # the other server's part is missing
    ingress.evaluation_due(1, 4, 3.0, ledger(20), again=False)
    ingress.evaluated(VersionEvaluated(4, 50.0, 0.1, 0.0))
    ingress.counted(4.0, [3000, 8000])
    (row,) = ingress.complete()
    assert (row["time"], row["run_time"], row["accuracy"]) == (3.0, 20, 50.0)
    assert (row["payload_bytes"], row["message_bytes"]) == (30, 60)
    assert row["wire_bytes"] == 1000 + 6000  # half way between 0 and 2 s, and between 2 and 4 s
    assert sum_of(ingress.at_last_evaluation_of_each()) == {
        "payload_bytes": 30,
        "message_bytes": 60,
        "wire_bytes": 7000,
    }
    assert ingress.newest == 11_000
    assert ingress.after_drain() is None


def test_the_last_evaluation_point_is_one_that_all_servers_have_reached() -> None:
    """A run may end when one is ahead of the others; the simulator counts it so, too."""
    ingress = IngressOfServers([ServerIngress(), ServerIngress()])
    ingress.counted(0.0, [0, 0])
    for server, payload in ((0, 10), (1, 20)):
        ingress.evaluation_due(server, 4, 1.0, ledger(payload), again=False)
    ingress.evaluation_due(0, 8, 2.0, ledger(30), again=False)
    ingress.counted(3.0, [3000, 6000])
    assert [one["payload_bytes"] for one in ingress.at_last_evaluation_of_each()] == [10, 20]
    ingress.evaluation_due(1, 8, 2.5, ledger(40), again=False)
    assert [one["payload_bytes"] for one in ingress.at_last_evaluation_of_each()] == [30, 40]


def test_a_version_that_one_server_leaves_out_is_expected_of_none() -> None:
    ingress = IngressOfServers([ServerIngress(), ServerIngress()])
    ingress.evaluation_due(0, 4, 1.0, ledger(10), again=False)
    assert ingress.left_out(4)
    assert not ingress.left_out(4)
    ingress.evaluation_due(1, 4, 2.0, ledger(20), again=False)
    assert ingress.due == 0


def test_pushes_are_counted_over_links_and_in_earlier_sessions() -> None:
    """Worker 1 is on the machine of server 1."""
    servers = Servers(slices(LAYOUT, 2), local={1: 1})
    rows = np.zeros(2, UPDATE)
    rows["worker"], rows["payload_bytes"], rows["message_bytes"] = (0, 1), (10, 20), (13, 24)
    for server in (0, 1):
        servers.had(rows[:1], server)
        servers.take(rows, server)
    both = {"payload_bytes": 40, "message_bytes": 50}
    assert servers.pushed == [
        both,
        both | {"local_payload_bytes": 20, "local_message_bytes": 24},
    ]
    assert servers.over_links == [50, 26]

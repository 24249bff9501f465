"""Ledger, counter and evaluator are combined for each evaluation point, in any order of arrival."""

from testbed.messages.reports import VersionEvaluated
from testbed.orchestrator.server_ingress import ServerIngress

LEDGER = {"payload_bytes": 10, "message_bytes": 20}


def test_wire_bytes_are_interpolated_between_two_readings() -> None:
    ingress = ServerIngress()
    ingress.counted(1.0, 100)
    ingress.evaluation_due(5, 1.5, LEDGER)
    ingress.evaluated(VersionEvaluated(5, 90.0, 0.5, 0.0))
    assert list(ingress.complete()) == []  # no reading after it yet
    assert ingress.due == 1
    ingress.counted(2.0, 200)
    (row,) = ingress.complete()
    assert row == {
        "iteration": 5,
        "time": 1.5,
        "accuracy": 90.0,
        "loss": 0.5,
        "measured": None,
        "wire_bytes": 150,
        **LEDGER,
    }
    assert ingress.due == 0
    assert list(ingress.complete()) == []


def test_wire_bytes_are_no_fewer_than_the_messages_that_have_arrived() -> None:
    """In a short run all bytes may come between two readings, and the time says little."""
    ingress = ServerIngress()
    ingress.counted(1.0, 0)
    ledger = {"payload_bytes": 144_000, "message_bytes": 144_800}  # 100 segments
    ingress.evaluation_due(5, 1.1, ledger)
    ingress.counted(2.0, 200_000)
    assert ingress.at_last_evaluation() == {**ledger, "wire_bytes": 144_800 + 6_600}
    ingress.evaluation_due(6, 2.5, ledger)
    ingress.counted(3.0, 300_000)
    assert ingress.at_last_evaluation()["wire_bytes"] == 250_000


def test_wire_bytes_contain_messages_that_have_yet_to_pass() -> None:
    """By the virtual clock peers count a message when it is sent, and a counter may be late."""
    ingress = ServerIngress(wire_bytes=1_000)
    ingress.counted(1.0, 0)
    ledger = {"payload_bytes": 0, "message_bytes": 144_800}  # 100 segments
    ingress.evaluation_due(5, 1.5, ledger)
    ingress.counted(2.0, 100_000)
    assert ingress.at_last_evaluation()["wire_bytes"] == 144_800 + 6_600
    ingress.evaluation_due(6, 2.5, ledger)
    ingress.counted(3.0, 200_000)
    assert ingress.at_last_evaluation()["wire_bytes"] == 151_400


def test_a_run_that_was_cut_short_has_all_that_is_known_of_its_ingress() -> None:
    ingress = ServerIngress(wire_bytes=1_000)
    ingress.counted(1.0, 100_000)
    # Pushes that the counter was not read after.
    pushed = {"payload_bytes": 144_000, "message_bytes": 144_800}
    assert ingress.so_far(pushed, 144_800) == {**pushed, "wire_bytes": 144_800 + 6_600}
    # What came over no link is not on the wire.
    assert ingress.so_far(pushed, 0)["wire_bytes"] == 101_000
    # Greetings are in the ledger, and in no row.
    ledger = {"payload_bytes": 144_000, "message_bytes": 144_900}
    ingress.evaluation_due(5, 0.9, ledger)
    assert ingress.so_far(pushed, 144_800) == {**ledger, "wire_bytes": 144_900 + 6_666}


def test_rows_come_in_order_and_wait_for_a_slow_evaluator() -> None:
    ingress = ServerIngress()
    for version in (0, 100, 200):
        ingress.evaluation_due(version, version / 100, LEDGER)
    ingress.counted(9.0, 900)
    ingress.evaluated(VersionEvaluated(0, 10.0, 2.3, 0.0))
    assert [r["iteration"] for r in ingress.complete()] == [0]
    assert ingress.due == 2
    ingress.evaluated(VersionEvaluated(100, 50.0, 1.0, 0.0))
    ingress.evaluated(VersionEvaluated(200, 60.0, 0.9, 0.0))
    assert [r["iteration"] for r in ingress.complete()] == [100, 200]


def test_totals_at_the_last_evaluation_point_and_after_the_drain() -> None:
    ingress = ServerIngress()
    assert ingress.at_last_evaluation()["wire_bytes"] == 0
    assert ingress.after_drain() is None
    ingress.counted(1.0, 100)
    ingress.evaluation_due(7, 2.0, LEDGER)
    ingress.counted(3.0, 300)
    ingress.total = {"payload_bytes": 11, "message_bytes": 22}
    assert ingress.at_last_evaluation() == {**LEDGER, "wire_bytes": 200}
    assert ingress.after_drain() == {"payload_bytes": 11, "message_bytes": 22, "wire_bytes": 300}


def test_bytes_that_a_restored_server_has_forgotten_stay_counted() -> None:
    ingress = ServerIngress()
    ingress.evaluation_due(100, 1.0, LEDGER)
    ingress.counted(1.0, 100)
    ingress.evaluated(VersionEvaluated(100, 50.0, 1.0, 0.5))
    assert [row["iteration"] for row in ingress.complete()] == [100]
    ingress.evaluation_due(200, 2.0, {"payload_bytes": 20, "message_bytes": 40})
    ingress.go_back(150, 3.0, {"payload_bytes": 7, "message_bytes": 9})
    assert ingress.due == 0
    assert ingress.at_last_evaluation()["wire_bytes"] == 0
    # It reaches the same version again; a result that came from the killed server is ignored.
    ingress.evaluation_due(200, 4.0, {"payload_bytes": 20, "message_bytes": 40})
    ingress.evaluated(VersionEvaluated(200, 60.0, 0.9, 2.9))
    ingress.counted(5.0, 500)
    assert list(ingress.complete()) == []
    ingress.evaluated(VersionEvaluated(200, 70.0, 0.8, 3.1))
    (row,) = ingress.complete()
    assert row["accuracy"] == 70.0
    assert (row["payload_bytes"], row["message_bytes"], row["wire_bytes"]) == (27, 49, 400)
    ingress.total = {"payload_bytes": 30, "message_bytes": 60}
    after = ingress.after_drain()
    assert after == {"payload_bytes": 37, "message_bytes": 69, "wire_bytes": 500}


def test_a_resumed_run_continues_to_count() -> None:
    ingress = ServerIngress(1000, {"payload_bytes": 3, "message_bytes": 4})
    ingress.has({"iteration": version, "wire_bytes": 900, **LEDGER} for version in (0, 100))
    assert ingress.newest == 1000
    ingress.evaluation_due(100, 0.5, LEDGER, again=True)  # on record already
    ingress.evaluation_due(200, 0.5, LEDGER, again=True)
    ingress.evaluation_due(200, 0.6, LEDGER, again=True)
    assert ingress.due == 1
    ingress.evaluated(VersionEvaluated(200, 60.0, 0.9, 0.0))
    ingress.counted(1.0, 10)
    (row,) = ingress.complete()
    assert (row["iteration"], row["wire_bytes"], ingress.newest) == (200, 1010, 1010)
    assert (row["payload_bytes"], row["message_bytes"]) == (13, 24)


def test_a_run_resumed_at_its_end_has_the_totals_on_record() -> None:
    ingress = ServerIngress(1000)
    ingress.has([{"iteration": 200, "time": 7.5, "wire_bytes": 900, **LEDGER}])
    ingress.counted(8.0, 10)
    ingress.evaluation_due(200, 9.0, LEDGER, again=True)
    assert ingress.at_last_evaluation() == {**LEDGER, "wire_bytes": 900}
    ingress.go_back(150, 10.0, {})
    assert ingress.at_last_evaluation()["wire_bytes"] == 0

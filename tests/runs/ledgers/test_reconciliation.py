"""The server's ledger of connections that faults disturbed, compared with a capture's flows."""

from dataclasses import replace
from typing import Any

import numpy as np

from testbed.messages.agent_reports import CaptureReport
from testbed.results.reading.run_files import SERVER_KILLED
from testbed.runs.ledgers.ledgers import ConnectionLedger, Ledgers
from testbed.runs.ledgers.reconciliation import BACKGROUND, reconcile
from traffic.accounting import FLOW_COLUMNS, Account
from traffic.datagrams import DATAGRAM_COLUMNS
from traffic.packet_totals import QUANTITIES, SECOND_COLUMNS

SERVER, WORKER = "10.77.0.1", "10.77.0.5"


def ledgers(*connections: ConnectionLedger) -> Ledgers:
    report: CaptureReport = {"records": 0, "dropped": 0, "left_out": 0, "error": None}
    counted: dict[str, float] = {"frames": 0, "bytes": 0}
    return Ledgers(
        SERVER,
        {WORKER: "worker-0"},
        True,
        connections=list(connections),
        capture=report,
        counter=counted,
    )


def connection(received: int, port: int = 40_000) -> ConnectionLedger:
    return ConnectionLedger(
        device="worker-0",
        address=WORKER,
        port=port,
        message_bytes=received,
        incomplete_bytes=0,
        payload_bytes=0,
        sent_bytes=32,
        unsent_bytes=0,
        reason="reset",
        local_port=7077,
    )


def seen(*flows: dict[str, Any]) -> Account:
    rows = np.zeros(2 * len(flows), FLOW_COLUMNS)
    rows["opened"] = True
    for i, flow in enumerate(flows):
        for name, value in flow.items():
            rows[name][2 * i] = value
        rows["pair"][2 * i + 1] = 1
        rows["stream_bytes"][2 * i + 1] = 32
    rows["source_port"][0::2] = rows["destination_port"][1::2] = 40_000
    rows["destination_port"][0::2] = rows["source_port"][1::2] = 7077
    seconds = np.zeros(0, SECOND_COLUMNS)
    pairs = ((WORKER, SERVER), (SERVER, WORKER))
    totals = dict.fromkeys(QUANTITIES, 0)
    return Account(
        seconds=seconds,
        pairs=pairs,
        flows=rows,
        totals=totals,
        first=None,
        last=None,
        dropped=0,
        assumed=0,
        damage=(),
    )


def test_a_port_that_is_used_again_has_a_flow_of_its_own() -> None:
    first, second = ({"stream_bytes": n, "whole_bytes": n} for n in (100, 70))
    assert not reconcile(ledgers(connection(100), connection(70)), seen(first, second))
    differences = reconcile(ledgers(connection(100), connection(71)), seen(first, second))
    assert [(one.expected, one.found) for one in differences] == [(71, 70)]


def test_a_refused_connection_is_not_a_later_one_from_the_same_port() -> None:
    account = seen({}, {"stream_bytes": 100, "whole_bytes": 100})
    account.flows["stream_bytes"][1] = 0
    account.flows["opened"][1] = False  # a reset, and no SYN
    assert not reconcile(ledgers(connection(100)), account)


def test_a_flow_to_a_killed_server_is_not_the_next_one_from_its_port() -> None:
    of_killed, of_next = ({"stream_bytes": n, "whole_bytes": n} for n in (100, 70))
    report = ledgers(connection(70))
    report.server_kills = 1
    differences = reconcile(report, seen(of_killed, of_next))
    assert {one.reason for one in differences} == {SERVER_KILLED}
    assert [one.found for one in differences] == [100, 32]


def test_bytes_after_an_unfilled_gap_never_reached_the_server() -> None:
    cut = {"stream_bytes": 150, "whole_bytes": 100, "missing_bytes": 30, "reset": True}
    assert not reconcile(ledgers(connection(100)), seen(cut))
    # Another number of bytes, or a connection that went on: one of the two counts is wrong.
    assert reconcile(ledgers(connection(120)), seen(cut))
    assert reconcile(ledgers(connection(100)), seen(cut | {"reset": False}))


def test_bytes_after_the_server_closed_a_connection_never_reached_it() -> None:
    late = {"stream_bytes": 150, "whole_bytes": 150, "acknowledged_bytes": 100}
    assert not reconcile(ledgers(connection(100)), seen(late))
    # Bytes that its kernel acknowledged did reach it.
    assert reconcile(ledgers(connection(100)), seen(late | {"acknowledged_bytes": 120}))
    assert reconcile(ledgers(connection(160)), seen(late | {"acknowledged_bytes": 160}))


def test_a_damaged_sequence_number_is_not_taken_for_bytes_that_arrived() -> None:
    damaged = {"stream_bytes": 148, "whole_bytes": 100, "missing_bytes": 9000, "closed": True}
    # The FIN is acknowledged, too.
    assert not reconcile(ledgers(connection(100)), seen(damaged | {"acknowledged_bytes": 101}))
    assert reconcile(ledgers(connection(100)), seen(damaged | {"acknowledged_bytes": 102}))
    still_open = damaged | {"acknowledged_bytes": 101, "closed": False}
    assert reconcile(ledgers(connection(100)), seen(still_open))


def test_frames_with_a_damaged_port_belong_to_no_connection() -> None:
    whole = {"stream_bytes": 100, "whole_bytes": 100, "acknowledged_bytes": 100}
    account = seen(whole, {"stream_bytes": 1448})
    account.flows["source_port"][2] = 40_001
    account.flows["destination_port"][3], account.flows["stream_bytes"][3] = 40_001, 0
    # As long as the server acknowledges something, or a SYN opened it, it is a connection.
    assert [one.found for one in reconcile(ledgers(connection(100)), account)] == [1448]
    account.flows["opened"][2] = False
    assert not reconcile(ledgers(connection(100)), account)
    account.flows["acknowledged_bytes"][2] = 1
    assert [one.found for one in reconcile(ledgers(connection(100)), account)] == [1448]


def test_background_traffic_that_was_counted_is_that_which_was_captured() -> None:
    account = seen()
    datagrams = np.zeros(2, DATAGRAM_COLUMNS)
    datagrams["pair"], datagrams["wire_bytes"] = (
        [2, 0],
        [1442, 60],
    )  # the second one's port is another
    pairs = (*account.pairs, (WORKER, SERVER))
    account = replace(account, pairs=pairs, datagrams=datagrams, apart=frozenset([2]))
    report = ledgers()
    report.background = {"worker-0": 1442}
    assert not reconcile(report, account)
    report.background = {"worker-0": 2884, "worker-1": 1442}
    differences = [
        (one.ledgers, one.device, one.expected, one.found) for one in reconcile(report, account)
    ]
    assert differences == [
        (BACKGROUND, "worker-0", 2884, 1442),
        (BACKGROUND, "worker-1", 1442, 0),
    ]

"""The comparison of sockets with flows: what agrees, and what is said of what does not."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from traffic.accounting import FLOW_COLUMNS, Account
from traffic.packet_totals import QUANTITIES, SECOND_COLUMNS
from traffic.socket_comparison import RECEIVED, SENT, SocketDifference, compare_sockets
from traffic.sockets import Forgotten, Socket

HOST, PEER = "10.0.0.1", "10.0.0.2"


def ended(received: int, acked: int, cookie: int = 1, **more: Any) -> Socket:
    """Return a socket that accepted a connection from port 40000 at port 80."""
    one = Socket(HOST, 80, PEER, 40000, cookie, "CLOSE", True, received, acked, 10**6, 0, 0)
    return one._replace(**more)


def captured(*flows: dict[str, Any], dropped: int = 0, damage: tuple[str, ...] = ()) -> Account:
    """Return an account: for each flow to the host, with its stream, one back with ``sent`` bytes."""
    rows = np.zeros(2 * len(flows), FLOW_COLUMNS)
    rows["opened"] = rows["closed"] = True
    for i, flow in enumerate(flows):
        inward, outward = rows[2 * i : 2 * i + 1], rows[2 * i + 1 : 2 * i + 2]
        for name in ("stream_bytes", "whole_bytes", "acknowledged_bytes"):
            inward[name] = flow.get("stream", 0)
            outward[name] = flow.get("sent", 0)
        for name in set(flow) - {"stream", "sent"}:
            inward[name] = flow[name]
    rows["source_port"][0::2] = rows["destination_port"][1::2] = 40000
    rows["destination_port"][0::2] = rows["source_port"][1::2] = 80
    rows["pair"][1::2] = 1
    return Account(
        seconds=np.zeros(0, SECOND_COLUMNS),
        pairs=((PEER, HOST), (HOST, PEER)),
        flows=rows,
        totals=dict.fromkeys(QUANTITIES, 0),
        first=None,
        last=None,
        dropped=dropped,
        assumed=0,
        damage=damage,
    )


def compare(sockets: list[Socket], found: Account, **more: Any) -> list[SocketDifference]:
    return list(compare_sockets(sockets, found, {HOST}, **more))


def test_the_fin_counts_or_not_and_nothing_else_does() -> None:
    found = captured({"stream": 100, "sent": 30})
    for received in range(98, 104):
        differences = compare([ended(received, 31)], found)
        if received in (100, 101):
            assert not differences
        else:
            (one,) = differences
            assert (one.direction, one.found) == (RECEIVED, 100)
            assert abs(one.expected - 100) == min(abs(received - 100), abs(received - 101))
    for acked in (29, 30, 32, 33):  # the FIN was acknowledged: all was
        (one,) = compare([ended(100, acked)], found)
        assert (one.direction, one.expected, one.found) == (SENT, acked - 1, 30)


def test_the_side_that_connects_counts_its_syn() -> None:
    rows = captured({"stream": 100, "sent": 30})
    flows = rows.flows[::-1].copy()
    assert compare([ended(100, 31)], Account(**_changed(rows, flows=flows)))
    assert not compare([ended(100, 32)], Account(**_changed(rows, flows=flows)))


def _changed(account: Account, **more: Any) -> dict[str, Any]:
    return {name: getattr(account, name) for name in Account.__slots__} | more


def test_a_connection_that_was_cut_may_lack_what_was_not_acknowledged() -> None:
    found = captured({"stream": 100, "acknowledged_bytes": 60, "reset": True, "closed": False})
    for received in (59, 60, 80, 100, 101):
        assert bool(compare([ended(received, 0, unacknowledged=5)], found)) == (
            received not in range(60, 101)
        )
    gap = {"whole_bytes": 70, "missing_bytes": 10, "acknowledged_bytes": 60, "reset": True}
    (one,) = compare([ended(80, 1)], captured({"stream": 100, **gap}))
    assert one.reason == "the capture lacks 10 bytes of this stream"


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_ports_used_again_find_their_connections_in_any_order(order: tuple[int, ...]) -> None:
    """One of the four connections was cut, and would agree with any socket."""
    cut = {"stream": 90, "acknowledged_bytes": 0, "reset": True}
    found = captured({"stream": 10}, {"stream": 20}, cut, {"stream": 0})
    sockets = [ended(11, 1, 1), ended(21, 1, 2), ended(50, 1, 3), ended(1, 1, 4)]
    assert not compare([sockets[i] for i in order], found)
    wrong = [one._replace(bytes_received=31) if one.cookie == 2 else one for one in sockets]
    assert compare([wrong[i] for i in order], found)


def test_a_socket_makes_room_for_one_that_fits_there_only() -> None:
    """Of 80 bytes received, only the second connection may be the one."""
    bounds = ((30, 50), (0, 90), (35, 60))
    flows = [{"acknowledged_bytes": a, "stream": b, "reset": True} for a, b in bounds]
    sockets = [ended(40, 1, 1), ended(45, 1, 2), ended(80, 1, 3)]
    for order in permutations(sockets):
        for captured_in in permutations(flows):
            assert not compare(list(order), captured(*captured_in))
    differences = compare([*sockets, ended(81, 1, 4)], captured(*flows, {"stream": 5}))
    assert [(one.expected, one.found) for one in differences] == [(80, 5)]


def test_each_reason_is_named() -> None:
    missing = captured({"stream": 10})
    assert "dropped 3 packets" in compare([], captured({"stream": 10}, dropped=3))[0].reason
    damaged = captured({"stream": 10}, damage=("x is damaged",))
    assert compare([], damaged)[0].reason == "x is damaged"
    assert "the kernel reported no such socket" in compare([], missing)[0].reason
    assert "dropped 7 reports" in compare([], missing, lost=7)[0].reason
    assert "forgot its counts" in compare([], missing, forgotten=[Forgotten(80, 1)])[0].reason
    (one,) = compare([ended(10, 0, unacknowledged=1)], captured())
    assert one.reason == "the capture has nothing of this direction"
    living = ended(10, 0, state="ESTABLISHED", ended=False)
    assert "was open" in compare([living], captured({"stream": 20}))[0].reason
    unopened = captured({"stream": 20, "opened": False})
    assert "beginning" in compare([ended(30, 1)], unopened)[0].reason


def test_what_is_not_on_the_link_is_left_out() -> None:
    elsewhere = [
        ended(10, 10, 1, local="127.0.0.1", remote="127.0.0.1"),
        ended(10, 10, 2, remote="127.0.0.5"),
        ended(10, 10, 3, remote=HOST),
        ended(10, 10, 4, local="192.168.0.1"),
        ended(1, 1, 5),  # a connection without bytes
    ]
    assert not compare(elsewhere, captured())


def test_of_one_that_lives_and_ends_the_end_counts() -> None:
    before = ended(50, 0, state="ESTABLISHED", ended=False)
    for sockets in ([before, ended(101, 1)], [ended(101, 1), before]):
        assert not compare(sockets, captured({"stream": 100}))


def test_a_flow_of_which_nothing_arrived_needs_no_socket() -> None:
    assert not compare([], captured({"stream": 10, "acknowledged_bytes": 0}))
    assert compare([], captured({"stream": 10, "acknowledged_bytes": 1, "closed": False}))

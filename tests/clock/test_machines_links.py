"""The link of a machine that a worker shares with a server: what crosses it, at what rate, and when."""

import math
from typing import Any

import pytest

from testbed.clock.background import Background
from testbed.clock.conversations import Conversations, Machines, Way, conversations
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.network.segments import wire_bytes
from testbed.training.settings import Settings
from tests.simulation.test_simulated import settings

RATE = 8_000_000
SIZE = 200_000
BITS = 8 * wire_bytes(SIZE)
LOCAL, AWAY = (0, True), (1, True)
"""The ways of worker 0 to the server on its machine, and to the one on worker 1's."""
INTO = (4, True)
"""The way of worker 2, which has a machine to itself, to server 0."""


def of(**changes: Any) -> Settings:
    """Return the settings of three workers, and of two servers that are beside the first two."""
    network: dict[str, Any] = {"uplink": f"{RATE}bit", "downlink": f"{RATE}bit"}
    devices = {"workers": 3, "servers": 2, "placement": "co-located"}
    return settings(
        "asgd", network=network | changes.pop("network", {}), devices=devices, **changes
    )


def transfers(**changes: Any) -> SharedTransfers:
    planned = of(**changes)
    return SharedTransfers(planned, conversations(planned))


def send(links: SharedTransfers, now: float, *ways: Way) -> None:
    for number, up in ways:
        links.begin(now, Transfer(number, up, SIZE))


def ended(links: SharedTransfers) -> dict[Way, float]:
    """Carry out all transfers; return when each has ended, in seconds."""
    found: dict[Way, float] = {}
    while (time := links.next_end) < math.inf:
        if not links.change_rate():
            one = links.ending()
            links.end(time, one)
            found[one.conversation, one.up] = time
    return found


def test_a_machines_link_carries_its_worker_and_its_server() -> None:
    machines = Machines.with_all(3, servers=2)
    assert isinstance(conversations(of()), Machines)
    # Up: what worker 0 sends server 1, and what server 0 answers workers 1 and 2.
    assert machines.over_link(0, up=True) == [(1, True), (2, False), (4, False)]
    assert machines.over_link(0, up=False) == [(1, False), (2, True), (4, True)]
    assert machines.over_link(2, up=True) == machines.ways(2, up=True) == [(4, True), (5, True)]
    crossed = [way for one in range(3) for way in machines.over_link(one, up=True)]
    assert not {(0, True), (0, False), (3, True), (3, False)} & {*crossed}  # within a machine
    assert Conversations.with_all(1, 2).over_link(0, up=True) == [(0, True), (1, True)]


def test_a_rate_holds_for_all_that_crosses_the_link_and_for_nothing_else() -> None:
    links = transfers()
    send(links, 0.0, LOCAL, (2, True), INTO)
    assert links.next_end == 0.0  # within the machine
    links.end(0.0, links.ending())
    # Workers 1 and 2 share the downlink of server 0's machine, half of which is lost after 0.1 s.
    links.set_rates(0.1, 0, None, RATE // 2, is_down=False)
    left = 2 * (BITS - 0.1 * RATE / 2)
    assert links.next_end == pytest.approx(0.1 + left / (RATE / 2))
    links.set_rates(0.2, 0, None, None, is_down=False)
    left -= 0.1 * RATE / 2
    assert ended(links) == {way: pytest.approx(0.2 + left / RATE) for way in ((2, True), INTO)}


def test_a_link_that_is_down_stops_both_and_leaves_the_others_alone() -> None:
    links = transfers()
    send(links, 0.0, AWAY, INTO, (5, True))  # the last one: worker 2 to server 1
    links.set_rates(0.05, 0, None, None, is_down=True)
    send(links, 0.1, LOCAL)
    passed = links.passed(0.1)
    assert links.next_end == 0.1
    links.end(0.1, links.ending())
    assert links.passed(0.3)[AWAY] == passed[AWAY] and links.passed(0.3)[INTO] == passed[INTO]
    assert links.passed(0.3)[5, True] > passed[5, True]
    before = {way: BITS - 8 * passed[way] for way in (AWAY, INTO)}
    assert links.ending().conversation == 5 and links.next_end < 1.0
    links.end(links.next_end, links.ending())
    assert links.next_end == math.inf
    links.set_rates(10.0, 0, None, None, is_down=False)
    end = ended(links)
    for way in (AWAY, INTO):
        assert end[way] == pytest.approx(10.0 + before[way] / RATE, abs=1e-5)


def test_a_way_over_two_links_waits_for_both() -> None:
    links = transfers()
    links.set_rates(0.0, 0, None, None, is_down=True)
    links.set_rates(0.0, 1, None, None, is_down=True)
    send(links, 0.0, AWAY)
    links.set_rates(1.0, 0, None, None, is_down=False)
    assert links.next_end == math.inf
    links.set_rates(2.0, 1, None, None, is_down=False)
    assert ended(links) == {AWAY: pytest.approx(2.0 + BITS / RATE)}


def test_a_trace_of_a_machine_is_that_of_its_server_too() -> None:
    steps = {"times": [0.0, 0.1, 0.2], "rates": [RATE, 0, 2 * RATE], "period": None}
    links = transfers(
        network={"uplink": "1gbit", "downlink": None, "trace": {"content": {"downlink": steps}}}
    )
    send(links, 0.0, LOCAL, INTO)
    assert ended(links) == {LOCAL: 0.0, INTO: pytest.approx(0.2 + (BITS - 0.1 * RATE) / (2 * RATE))}


def test_a_link_without_a_rate_is_given_one_by_a_fault() -> None:
    slow = {"when": {"time": "1s"}, "how": {"kind": "slow", "uplink": "1mbit"}, "lasting": "1s"}
    links = transfers(network={"uplink": None, "downlink": None}, faults=[slow])
    send(links, 0.0, AWAY)
    links.set_rates(0.0, 0, RATE, None, is_down=False)
    send(links, 0.0, LOCAL, INTO)
    assert ended(links) == {LOCAL: 0.0, INTO: 0.0, AWAY: pytest.approx(BITS / RATE)}


def test_a_fault_of_a_machine_is_one_of_the_background_over_its_link_too() -> None:
    flow = {"from": "worker-2", "to": "worker-0", "rate": f"{RATE // 2}bit"}
    planned = of(traffic_between=[flow])
    background = Background(planned)
    links = SharedTransfers(planned, conversations(planned), background)

    def arrived(now: float) -> int:
        ((_, size),) = background.at(now, links.background_parts(now))
        return 8 * size

    assert arrived(1.0) == pytest.approx(RATE / 2)
    links.set_rates(1.0, 0, None, RATE // 8, is_down=False)
    assert arrived(2.0) == pytest.approx(RATE / 2 + RATE / 8)
    links.set_rates(2.0, 0, None, None, is_down=True)
    assert arrived(3.0) == pytest.approx(RATE / 2 + RATE / 8)
    links.set_rates(3.0, 0, None, None, is_down=False)
    assert arrived(4.0) == pytest.approx(RATE + RATE / 8)

"""Background flows on links that devices share, by the virtual clock: beside closed forms."""

from typing import Any

import pytest

from testbed.clock.background import Background
from testbed.clock.conversations import conversations
from testbed.clock.flows import Flows
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.faults.slowdown import Pace
from testbed.network.segments import wire_bytes
from tests.clock.test_background import settings_of

SIZE = 100_000
BITS = 8 * wire_bytes(SIZE)


class Shared:
    """Two workers and a server whose downlink has 8 Mbit/s, and what flows have sent."""

    def __init__(self, flows: list[dict[str, Any]], **network: Any) -> None:
        shared = {"uplink": "20mbit", "server": {"downlink": "8mbit"}}
        settings = settings_of(flows, 2, shared | network)
        self.background = Background(settings)
        self.transfers = SharedTransfers(settings, conversations(settings), self.background)

    def send(self, *workers: int, now: float = 0.0, size: int = SIZE) -> list[float]:
        """Return when messages end that workers send now."""
        ends: dict[int, float] = {}
        for worker in workers:
            self.transfers.begin(now, Transfer(worker, up=True, size=size))
        while len(ends) < len(workers):
            time = self.transfers.next_end
            if self.transfers.change_rate():
                continue
            transfer = self.transfers.ending()
            ends[transfer.conversation] = time
            self.transfers.end(time, transfer)
        return [ends[one] for one in workers]

    def bytes_at(self, now: float) -> list[tuple[int, int]]:
        return self.background.at(now, self.transfers.background_parts(now))


def to_server(rate: str, worker: int = 1, **keys: Any) -> dict[str, Any]:
    return {"from": f"worker-{worker}", "to": "server", "rate": rate, **keys}


@pytest.mark.parametrize(
    ("rate", "gets"),
    [("2mbit", 6e6), ("4mbit", 4e6), ("7mbit", 4e6)],  # it has a share of its own, at most
)
def test_a_flow_has_a_share_of_its_own(rate: str, gets: float) -> None:
    shared = Shared([to_server(rate)])
    (end,) = shared.send(0)
    assert end == pytest.approx(BITS / gets)
    wanted = float(rate.removesuffix("mbit")) * 1e6
    ((sent, arrived),) = shared.bytes_at(end)
    assert sent == pytest.approx(wanted * end / 8, abs=1)
    assert arrived == pytest.approx(min(wanted, 4e6) * end / 8, abs=1)
    # Alone it has the link to itself.
    ((sent, later),) = shared.bytes_at(end + 1)
    assert later - arrived == pytest.approx(wanted / 8, abs=1)


@pytest.mark.parametrize(("rate", "gets"), [("2mbit", 6e6), ("7mbit", 1e6)])
def test_a_flow_and_messages_of_one_pair_share_what_the_pair_has(rate: str, gets: float) -> None:
    shared = Shared([to_server(rate, 0)])
    (end,) = shared.send(0)
    assert end == pytest.approx(BITS / gets)
    ((sent, arrived),) = shared.bytes_at(end)
    assert sent == arrived
    # Beside another worker the pair has half of the link.
    again = Shared([to_server("1mbit", 0)])
    other, own = again.send(1, 0)
    assert other == pytest.approx(BITS / 4e6)
    assert own == pytest.approx(other + (BITS - 3e6 * other) / 7e6)


def test_flows_of_one_pair_have_one_share() -> None:
    shared = Shared([to_server("3mbit"), to_server("6mbit", law="poisson")])
    (end,) = shared.send(0)
    assert end == pytest.approx(BITS / 4e6)
    (_, first), (_, second) = shared.bytes_at(end)
    assert first + second == pytest.approx(4e6 * end / 8, abs=2)
    assert second == pytest.approx(2 * first, abs=3)


def test_an_on_off_flow_changes_what_a_message_gets() -> None:
    keys: dict[str, Any] = {"law": "on-off", "on": "20ms", "off": "30ms"}
    shared = Shared([to_server("2mbit", **keys)])
    (end,) = shared.send(0, size=10 * SIZE)
    on = shared.background.at(end)[0][0] * 8 / 2e6
    assert 8e6 * end - 2e6 * on == pytest.approx(8 * wire_bytes(10 * SIZE))
    # While nothing is on its way nothing is to happen; it is caught up with.
    assert shared.transfers.next_end == float("inf")
    sent, arrived = shared.bytes_at(50.0)[0]
    assert sent == arrived == pytest.approx(50 * 0.4 * 2e6 / 8, rel=0.2)
    (end,) = shared.send(0, now=60.0, size=10 * SIZE)
    (straight,) = Shared([to_server("2mbit", **keys)]).send(0, now=60.0, size=10 * SIZE)
    assert end == straight


def test_a_flow_stops_with_its_sender() -> None:
    shared = Shared([to_server("2mbit")])
    shared.transfers.follow_background(0.0)
    shared.background.follow(0.0, 1, 0.01, 0.0, Pace())
    shared.transfers.follow_background(0.0)
    (end,) = shared.send(0)
    assert end == pytest.approx(0.01 + (BITS - 8e4) / 6e6)


def test_what_its_uplink_does_not_pass_takes_nothing_of_shared_links() -> None:
    shared = Shared([to_server("6mbit")], uplink="6.1mbit")
    shared.transfers.follow_background(0.0)
    shared.background.follow(0.0, 1, 0.0, 0.0, Pace(uplink=2_000_000))
    shared.transfers.follow_background(0.0)
    (end,) = shared.send(0)
    assert end == pytest.approx(BITS / (8e6 - 0.99 * 2e6))


def test_a_companion_alone_never_ends() -> None:
    flows = Flows([10.0, 0.0], {0})
    alone = flows.begin(0.0, (0, 1), 1.0, beside=4.0)
    assert flows.next_end() is None and flows.rate(alone) == 0.0
    assert flows.passed_beside(2.0, alone) == 8.0
    other = flows.begin(2.0, (0,), 30.0)
    assert flows.rate(other) == 6.0
    flows.set_beside(4.0, alone, 9.0)
    assert flows.rate(other) == 5.0
    flows.change(5.0, 0, 4.0)
    assert flows.rate(other) == 2.0
    assert flows.passed_beside(6.0, alone) == 8.0 + 2 * 4 + 1 * 5 + 1 * 2
    assert flows.passed(6.0, other) == 2 * 6 + 1 * 5 + 1 * 2

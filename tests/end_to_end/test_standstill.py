"""Emulations whose virtual clock is broken on purpose: they end and say why.

This process changes the orders that the clock gives to one device, and carries the run out: all of the
run's processes, the server's and the coordinator's among them, are forked from it.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bench.command import execute_here
from testbed.experiment.spec import Spec
from testbed.results.reading.recorded_run import RecordedRun
from testbed.roles.orders import OrderChannel
from testbed.roles.transport.endpoint import Endpoint

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

CarryOut: TypeAlias = Callable[[str, dict[str, Any]], RecordedRun]
CHANGED = ((OrderChannel, "give"), (Endpoint, "_sent"), (Endpoint, "send_pending"))
BREAKING = """
from testbed.roles.orders import OrderChannel, OrderKind

give, ordered = OrderChannel.give, {{}}

def broken(self, what, number=0, **how):
    orders = ordered.setdefault(self.fileno(), [])
    orders.append(what)
    first = self.fileno() == min(ordered)
    {change}
    return give(self, what, number, **how)

OrderChannel.give = broken
"""
NEVER = """if first and what is OrderKind.ARRIVED and number == 5:
        number = 4_000_000"""
NOT_BEGUN = """if first and what is OrderKind.BEGIN and orders.count(what) == 5:
        return True"""
AGAIN = """if first and what is OrderKind.ARRIVED and number == 5:
        give(self, what, 5)
        number = 4"""
FORGOTTEN = """if first and what is OrderKind.FINISHED and orders.count(what) == 5:
        return True"""


def spec(algorithm: dict[str, Any], faults: list[Any]) -> dict[str, Any]:
    return {
        "name": "broken",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 40},
        "clock": "virtual",
        "algorithms": [algorithm],
        "devices": {"workers": 3},
        "compute": {"distribution": "exponential", "mean": "100ms"},
        "evaluation": {"every": 100, "images": 50},
        "faults": faults,
    }


@pytest.fixture
def carry_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CarryOut:
    """A function that carries an experiment out with a change of the code, undone after the test."""
    for owner, name in CHANGED:
        monkeypatch.setattr(owner, name, getattr(owner, name))

    def carried_out(change: str, made: dict[str, Any]) -> RecordedRun:
        exec(change, {})
        done = execute_here(Spec.model_validate(made), tmp_path)
        (summary,) = done.summaries
        return RecordedRun.load(done.directory / summary["algorithm"])

    return carried_out


WAITING = {"name": "sync-sgd", "wait_for": 2, "protocol": "push-and-wait"}
INTERRUPTED = {"name": "sync-sgd", "protocol": "push-and-interrupt"}


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("algorithm", "change", "reason"),
    [
        (WAITING, NOT_BEGUN, "a computation is over, and none is under way"),
        (WAITING, AGAIN, "after which it cannot come any more"),
        (INTERRUPTED, NEVER, "which waits for version 4000000"),
        ({"name": "asgd"}, FORGOTTEN, "which waits for the clock's next order"),
    ],
    ids=[
        "not begun",
        "repeated",
        "skipped",
        "not told",
    ],
)
def test_a_broken_order_of_events_ends_the_run_with_the_reason(
    algorithm: dict[str, Any], change: str, reason: str, carry_out: CarryOut
) -> None:
    run = carry_out(BREAKING.format(change=change), spec(algorithm, []))
    assert run.manifest.ended == "failed"
    assert run.manifest.reason is not None
    assert "worker-" in run.manifest.reason
    assert reason in run.manifest.reason


@pytest.mark.timeout(400)
def test_outages_and_a_busy_host_are_no_standstill(carry_out: CarryOut) -> None:
    """The orders are unchanged; one worker's orders come late, and links really go down."""
    slow = """import time; first and time.sleep(0.2)"""
    cut = {"when": {"mean_time": "700ms"}, "how": "stop-network", "lasting": "400ms"}
    made = spec(WAITING, [cut]) | {"training": {"updates": 20}}
    run = carry_out(BREAKING.format(change=slow), made)
    assert run.manifest.ended == "completed", run.manifest.reason


PEERS = {"name": "all-to-all", "learning_rate": 0.01}
NEVER_SENT = """if first and what is OrderKind.ARRIVED and orders.count(what) == 5:
        give(self, what, number)"""
FOR_EACH_OTHER = """place = sorted(ordered).index(self.fileno())
    if place < 2 and what is OrderKind.BEGIN and orders.count(what) == 1:
        give(self, what)
        what, number = OrderKind.ARRIVED, 1 - place"""
FAR_BEHIND = """if first and what is OrderKind.ARRIVED and orders.count(what) == 5:
        while give(self, what, number, wait=False):
            pass
        return False"""
MESSAGE = "which waits for a message of peer-."
ORDER = "which waits for the clock's next order, and nothing is under way"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (NEVER_SENT, f"peer-0, {MESSAGE}, {ORDER}"),
        (FOR_EACH_OTHER, f"peer-., {MESSAGE}, {MESSAGE}, and nothing is under way"),
        (FAR_BEHIND, f"peer-0, {MESSAGE}, {ORDER}"),
        (FORGOTTEN, f"peer-0, {ORDER}"),
    ],
    ids=["never sent", "each waits for the other", "far behind", "not told"],
)
def test_peers_that_wait_forever_end_the_run_with_the_reason(
    change: str, reason: str, carry_out: CarryOut
) -> None:
    run = carry_out(BREAKING.format(change=change), spec(PEERS, []))
    assert run.manifest.ended == "failed"
    assert run.manifest.reason is not None
    assert re.search(
        f"s of the run's clock the coordinator waits for {reason}", run.manifest.reason
    )


LATE = """
import time
from testbed.roles.transport.endpoint import Endpoint

sent_at_once, send_pending = Endpoint._sent, Endpoint.send_pending
updates, held = [], {}

def send_late(self, pieces, flags=0):
    if sum(map(len, pieces)) > 1000 and not self.pending:
        updates.append(self.socket.fileno())
        if len(updates) == 1:
            time.sleep(4)
        if len(updates) == 4:
            held[self.socket.fileno()] = time.monotonic() + 4
            return 0
    return sent_at_once(self, pieces, flags)

def send_pending_late(self):
    if time.monotonic() < held.get(self.socket.fileno(), 0):
        time.sleep(0.01)
    else:
        send_pending(self)

Endpoint._sent = send_late
Endpoint.send_pending = send_pending_late
"""


@pytest.mark.timeout(400)
def test_peers_that_send_seconds_late_are_no_standstill(carry_out: CarryOut) -> None:
    """The orders are unchanged; one sender sleeps, another keeps its update back for seconds."""
    run = carry_out(LATE, spec(PEERS, []))
    assert run.manifest.ended == "completed", run.manifest.reason

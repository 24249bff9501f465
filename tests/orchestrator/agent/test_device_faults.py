"""Faults on real links and nodes at work; the roles are sample_roles.py."""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from testbed.doctor.attempts import missing_disciplines
from testbed.messages.agent_reports import ProcessExited, RunFailed
from testbed.messages.requests import (
    FreezeDevice,
    KillDevice,
    LimitProcessors,
    Request,
    SetCorruption,
    SetLink,
    SetPartition,
    SetRates,
    SetTracedRates,
)
from tests.orchestrator.agent.test_agent import Harness, agent, pytestmark

__all__ = ["agent", "pytestmark"]
SERVER = "10.77.0.1"
ADDRESSES = {f"worker-{i}": f"10.77.0.{2 * (2 + i) + 1}" for i in range(3)}


PATIENCE = 30.0
"""Seconds that a busy host may take for what an idle one does at once."""


def heard(agent: Harness, seconds: float, *loud: str) -> Counter[str]:
    """Count the server's reports of each address; those that wait already are thrown away.

    Args:
        seconds: how long to count at least.
        loud: addresses that are waited for, up to ``PATIENCE``, until each has over ten reports.
    """
    os.set_blocking(agent.report.fileno(), False)
    try:
        counts: Counter[str] = Counter()
        for patience in (0.0, seconds):
            counts.clear()
            deadline = time.monotonic() + patience
            while True:
                try:
                    message = agent.report.receive()
                except BlockingIOError:
                    late = time.monotonic() - deadline
                    if late >= 0 and (
                        not patience or late > PATIENCE or all(counts[one] > 10 for one in loud)
                    ):
                        break
                    time.sleep(0.01)
                else:
                    assert message is not None
                    counts[message.fields["from"]] += 1
        return counts
    finally:
        os.set_blocking(agent.report.fileno(), True)


def asked(agent: Harness, request: Request) -> None:
    agent.ask(request)
    agent.counter()  # an answer means that the request before it was carried out


def pumping(agent: Harness, *workers: str) -> None:
    agent.network("server", "evaluator", *ADDRESSES)
    agent.start("server", what="gather")
    agent.until(agent.report, lambda m: "listening" in m.fields)
    for worker in workers:
        agent.start(worker, what="pump", to=SERVER)
        address = ADDRESSES[worker]
        agent.until(agent.report, lambda m: m.fields["from"] == address)  # noqa: B023


@pytest.mark.parametrize("how", ["link", "cut"])
def test_an_outage_affects_one_device_and_ends(agent: Harness, how: str) -> None:
    pumping(agent, "worker-0", "worker-1")
    device = "worker-0"
    out = SetLink(device, up=False) if how == "link" else SetPartition([device], cut=True)
    back = SetLink(device, up=True) if how == "link" else SetPartition([device], cut=False)
    for _ in range(2):  # twice: the first time must leave no trace
        asked(agent, out)
        asked(agent, out)  # asking twice changes nothing
        during = heard(agent, 0.6, ADDRESSES["worker-1"])
        assert during[ADDRESSES["worker-0"]] == 0
        assert during[ADDRESSES["worker-1"]] > 10
        asked(agent, back)
        asked(agent, back)
        # The connection goes on once TCP tries again.
        agent.until(agent.report, lambda m: m.fields["from"] == ADDRESSES["worker-0"])
        back_again = heard(agent, 0.6, ADDRESSES["worker-0"])
        assert back_again[ADDRESSES["worker-0"]] > 10


@pytest.mark.parametrize("how", ["link", "cut", "trace"])
def test_a_fault_of_a_machines_link_is_its_servers_as_well(agent: Harness, how: str) -> None:
    """Messages between the two devices on the machine pass, and so do those of the other server."""
    names = ["server-0", "evaluator", "worker-0", "worker-1", "server-1"]
    agent.network(*names, machine=("server-0", "worker-0"))
    address = {name: f"10.77.0.{2 * i + 1}" for i, name in enumerate(names)}
    for server in ("server-0", "server-1"):
        agent.start(server, what="gather")
        agent.until(agent.report, lambda m: "listening" in m.fields)
    agent.start("worker-0", what="pump", to=address["server-0"])
    agent.until(agent.report, lambda m: m.fields["from"] == address["worker-0"])
    agent.start("worker-1", what="pump", to=address["server-0"])
    agent.until(agent.report, lambda m: m.fields["from"] == address["worker-1"])
    changes: dict[str, tuple[Request, Request]] = {
        "link": (SetLink("worker-0", up=False), SetLink("worker-0", up=True)),
        "cut": (SetPartition(["worker-0"], cut=True), SetPartition(["worker-0"], cut=False)),
        "trace": (
            SetTracedRates({"worker-0": (0, 0)}),
            SetTracedRates({"worker-0": (None, None)}),
        ),
    }
    out, back = changes[how]
    for _ in range(2):  # twice: the first time must leave no trace
        asked(agent, out)
        asked(agent, out)
        during = heard(agent, 0.6, address["worker-0"])
        assert during[address["worker-1"]] == 0
        assert during[address["worker-0"]] > 10
        asked(agent, back)
        agent.until(agent.report, lambda m: m.fields["from"] == address["worker-1"])
        assert heard(agent, 0.6, address["worker-1"])[address["worker-1"]] > 10


@pytest.mark.parametrize("how", ["link", "cut"])
def test_nothing_answers_for_a_device_that_is_cut_off(agent: Harness, how: str) -> None:
    agent.network("server", "evaluator", "worker-0")
    agent.start("worker-0", what="gather")
    agent.until(agent.report, lambda m: "listening" in m.fields)
    agent.start("server", what="pump", to=ADDRESSES["worker-0"])
    agent.until(agent.report, lambda m: m.fields["from"] == SERVER)
    if how == "link":
        asked(agent, SetLink("worker-0", up=False))
    else:
        asked(agent, SetPartition(["worker-0"], cut=True))
    time.sleep(0.1)
    quiet = agent.counter()
    time.sleep(1.0)  # the server sends again what is not acknowledged, and no ICMP comes back
    assert agent.counter()["frames"] == quiet["frames"]


def test_a_cut_and_a_link_that_is_down_are_independent(agent: Harness) -> None:
    pumping(agent, *ADDRESSES)
    asked(agent, SetPartition(["worker-0", "worker-1"], cut=True))
    asked(agent, SetLink("worker-0", up=False))
    asked(agent, SetPartition(["worker-0", "worker-1"], cut=False))
    agent.until(agent.report, lambda m: m.fields["from"] == ADDRESSES["worker-1"])
    during = heard(agent, 0.5, *(ADDRESSES[name] for name in ("worker-1", "worker-2")))
    assert during[ADDRESSES["worker-0"]] == 0
    assert min(during[ADDRESSES[name]] for name in ("worker-1", "worker-2")) > 10


@pytest.mark.parametrize("planned", [None, 80_000_000])
def test_rates_change_and_are_as_planned_again(agent: Harness, planned: int | None) -> None:
    agent.network(
        "server", "evaluator", *ADDRESSES, uplinks={"worker-0": planned} if planned else {}
    )
    for device in ("server", "worker-1"):
        agent.start(device, what="listen")
        agent.until(agent.report, lambda m: "listening" in m.fields)

    def seconds(source: str, to: str) -> float:
        began = time.monotonic()
        agent.start(source, what="send", to=to, bytes=1_000_000)
        return float(agent.until(agent.report, lambda m: "from" in m.fields)["at"]) - began

    def least(source: str, to: str, enough: float) -> float:
        """Return the least time of several tries: a busy host makes it longer, never shorter."""
        deadline = time.monotonic() + PATIENCE
        found = seconds(source, to)
        while found >= enough and time.monotonic() < deadline:
            found = min(found, seconds(source, to))
        return found

    assert least("worker-0", SERVER, 0.7) < 0.7
    for _ in range(2):
        asked(agent, SetRates("worker-0", uplink=8_000_000, downlink=None))
        # 1 MB and its headers at 8 Mbit/s
        assert 0.95 <= least("worker-0", SERVER, 1.8) < 1.8
        asked(agent, SetRates("worker-0", uplink=None, downlink=None))
        assert least("worker-0", SERVER, 0.7) < 0.7
    asked(agent, SetRates("worker-1", uplink=None, downlink=8_000_000))
    assert 0.95 <= least("worker-2", ADDRESSES["worker-1"], 1.8) < 1.8
    asked(agent, SetRates("worker-1", uplink=None, downlink=None))
    assert least("worker-2", ADDRESSES["worker-1"], 0.7) < 0.7


def test_damaged_frames_are_sent_again(agent: Harness) -> None:
    missing = missing_disciplines()
    if "netem" in missing:
        pytest.skip(f"this kernel has no netem: {missing['netem']}")
    agent.network("server", "evaluator", *ADDRESSES)
    agent.start("server", what="listen")
    agent.until(agent.report, lambda m: "listening" in m.fields)
    asked(agent, SetCorruption("worker-0", share=0.05))
    before = agent.counter()["frames"]
    agent.start("worker-0", what="send", to=SERVER, bytes=3_000_000)
    assert agent.until(agent.report, lambda m: "from" in m.fields)["bytes"] == 3_000_000
    assert agent.counter()["frames"] - before > 1.02 * 3_000_000 / 1448
    asked(agent, SetCorruption("worker-0", share=0.0))


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_node_is_started_again(agent: Harness, frozen: bool) -> None:
    agent.network("server", "evaluator", "worker-0")
    for _ in range(3):
        agent.start("worker-0", what="tick")
        agent.until(agent.report, lambda m: m.fields["tick"] == 3)
        if frozen:
            asked(agent, FreezeDevice("worker-0"))
        agent.ask(KillDevice("worker-0"))
        agent.event(ProcessExited, lambda ended: ended.device == "worker-0")
        while True:  # what it had reported before
            os.set_blocking(agent.report.fileno(), False)
            try:
                agent.report.receive()
            except BlockingIOError:
                break
            finally:
                os.set_blocking(agent.report.fileno(), True)


def test_namespaces_do_not_limit_processors(agent: Harness, tmp_path: Path) -> None:
    agent.network("server", "evaluator", "worker-0")
    agent.ask(LimitProcessors("worker-0", cpus=0.5))
    failed = agent.event(RunFailed)
    assert failed.host and "devices.runtime docker" in failed.reason


def test_a_rate_of_0_lets_nothing_pass_in_its_direction_until_the_next(agent: Harness) -> None:
    pumping(agent, "worker-0", "worker-1")
    muted, other = ADDRESSES["worker-0"], ADDRESSES["worker-1"]
    asked(agent, SetTracedRates({"worker-0": [0, None], "worker-1": [None, None]}))
    heard(agent, 0.3)  # what was on its way
    counts = heard(agent, 0.5, other)
    assert counts[other] > 10
    assert counts[muted] == 0
    asked(agent, SetTracedRates({"worker-0": [None, None]}))
    assert heard(agent, 0.5, muted)[muted] > 10

"""Fault injection under the wall clock: requests to the agent, and the time until the next one."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.device_names import SERVER_NUMBER
from testbed.faults.fault import Fault
from testbed.messages.requests import FreezeDevice, KillDevice, Request, StartRole
from testbed.orchestrator.injection.injection import Injection
from testbed.runs.deduplication import Deduplication
from testbed.telemetry.run_log import RunLog
from tests.roles.server.test_server import settings

Make = Callable[..., tuple[Injection, list[Request]]]


class Clock:
    """A substitute for CLOCK_MONOTONIC, which only the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace ``time.monotonic`` by a clock that the test advances."""
    one = Clock()
    monkeypatch.setattr(time, "monotonic", one)
    return one


def rule(index: int, fault: Fault, time: float) -> dict[str, Any]:
    return {
        "stream": f"faults {index}",
        "fault": fault.to_json(),
        "devices": [index],
        "time": time,
    }


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(*rules: dict[str, Any]) -> tuple[Injection, list[Request]]:
        asked: list[Request] = []
        injection = Injection(
            settings(rules=rules),
            {0: "worker-0", 1: "worker-1"},
            ask=asked.append,
            start=lambda device, role: asked.append(StartRole(device, role)),
            event=lambda level, text, device: None,
            log=RunLog(tmp_path / "run", "", {}),
            once=Deduplication(),
        )
        return injection, asked

    return made


def test_a_worker_that_was_killed_for_good_is_not_waited_for(make: Make, clock: Clock) -> None:
    injection, asked = make(rule(0, Fault(0, "kill"), 1.0))
    injection.training(clock.now - 2)
    assert injection.patience == 0
    injection.turn()
    assert asked[0] == KillDevice("worker-0")
    assert injection.exited("worker-0")
    assert injection.patience == math.inf


def test_a_worker_comes_back_when_its_last_connection_is_reported(make: Make, clock: Clock) -> None:
    injection, asked = make(rule(0, Fault(0, "kill", 0.5), 1.0))
    injection.training(clock.now - 2)
    injection.turn()
    assert injection.exited("worker-0")
    assert injection.patience == 0.5
    clock.now += 0.6
    injection.turn()
    assert 0 < injection.patience < 0.1
    injection.closed(0)
    injection.turn()
    assert isinstance(asked[-1], StartRole)
    assert asked[-1].device == "worker-0" and asked[-1].role["incarnation"] == 1
    assert injection.patience == math.inf


def test_a_fault_that_is_not_due_by_a_moment_begins_in_a_later_turn(
    make: Make, clock: Clock
) -> None:
    both = [rule(i, Fault(i, "freeze", 60.0), time) for i, time in enumerate((1.0, 2.0))]
    injection, asked = make(*both)
    began = clock.now - 3
    injection.training(began)
    injection.turn(began + 1.5)
    assert asked == [FreezeDevice("worker-0")]
    injection.turn()
    assert asked == [FreezeDevice("worker-0"), FreezeDevice("worker-1")]


def test_a_killed_server_is_started_again_when_its_fault_ends(make: Make, clock: Clock) -> None:
    killed = rule(0, Fault(0, "kill", 0.5), 1.0) | {"devices": [SERVER_NUMBER]}
    injection, asked = make(killed)
    began = clock.now - 2
    injection.training(began)
    injection.turn()
    assert asked == [KillDevice("server")]
    assert injection.patience == math.inf  # until its process has ended
    assert injection.exited("server") and injection.server_exited == clock.now
    injection.turn()
    assert len(asked) == 1 and injection.patience == 0.5
    clock.now += 0.6
    injection.turn()
    role = {
        "role": "server",
        "number": SERVER_NUMBER,
        "restore": True,
        "kills": 1,
        "training": began,
    }
    assert asked[1:] == [StartRole("server", role)]
    assert injection.server_kills == 1 and injection.patience == math.inf
    assert not injection.exited("server")  # the testbed did not kill it


@pytest.mark.parametrize(
    ("fault", "asked_for"),
    [
        (Fault(0, "kill"), [KillDevice("worker-0")]),
        (Fault(0, "freeze", 60.0), [KillDevice("worker-0")]),
        (Fault(0, "stop-network", 60.0), []),
    ],
)
def test_a_worker_that_freezes_or_dies_after_training_is_killed(
    make: Make, clock: Clock, fault: Fault, asked_for: list[Request]
) -> None:
    injection, asked = make(rule(0, Fault(0, "freeze"), 1e6))
    injection.training(clock.now - 30)
    injection.release()
    assert asked == []
    injection.told(fault.record("begin", [0], 0.0, 7) | {"pushes": 3})
    assert asked == asked_for

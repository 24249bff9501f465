"""What the orchestrator does of faults by the wall clock, and when it has nothing to do."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.device_names import SERVER_NUMBER
from testbed.faults.fault import Fault
from testbed.orchestrator.injection.injection import Injection
from testbed.runs.deduplication import Deduplication
from testbed.telemetry.run_log import RunLog
from tests.roles.server.test_server import settings

Make = Callable[..., tuple[Injection, list[dict[str, Any]]]]


class Clock:
    """CLOCK_MONOTONIC in the test's hands: it moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the module that is tested."""
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
    def made(*rules: dict[str, Any]) -> tuple[Injection, list[dict[str, Any]]]:
        asked: list[dict[str, Any]] = []
        injection = Injection(
            settings(rules=rules),
            {0: "worker-0", 1: "worker-1"},
            ask=asked.append,
            start=lambda device, role: asked.append({"start": device, "role": role}),
            event=lambda level, text, device: None,
            log=RunLog(tmp_path / "run", "", {}),
            once=Deduplication(),
        )
        return injection, asked

    return made


def test_nobody_is_waited_for_who_was_killed_for_good(make: Make, clock: Clock) -> None:
    injection, asked = make(rule(0, Fault(0, "kill"), 1.0))
    injection.training(clock.now - 2)
    assert injection.patience == 0
    injection.turn()
    assert asked[0] == {"kill": "worker-0"}
    assert injection.exited("worker-0")
    assert injection.patience == math.inf


def test_who_comes_back_is_waited_for_until_all_is_known_of_it(make: Make, clock: Clock) -> None:
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
    assert asked[-1]["start"] == "worker-0" and asked[-1]["role"]["incarnation"] == 1
    assert injection.patience == math.inf


def test_what_is_not_due_by_a_checkpoint_comes_behind_it(make: Make, clock: Clock) -> None:
    both = [rule(i, Fault(i, "freeze", 60.0), time) for i, time in enumerate((1.0, 2.0))]
    injection, asked = make(*both)
    began = clock.now - 3
    injection.training(began)
    injection.turn(began + 1.5)
    assert asked == [{"freeze": "worker-0"}]
    injection.turn()
    assert asked == [{"freeze": "worker-0"}, {"freeze": "worker-1"}]


def test_a_server_is_started_again_when_it_has_been_away_for_so_long(
    make: Make, clock: Clock
) -> None:
    killed = rule(0, Fault(0, "kill", 0.5), 1.0) | {"devices": [SERVER_NUMBER]}
    injection, asked = make(killed)
    began = clock.now - 2
    injection.training(began)
    injection.turn()
    assert asked == [{"kill": "server"}]
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
    assert asked[1:] == [{"start": "server", "role": role}]
    assert injection.server_kills == 1 and injection.patience == math.inf
    assert not injection.exited("server")  # not the testbed's doing


@pytest.mark.parametrize(
    ("fault", "asked_for"),
    [
        (Fault(0, "kill"), [{"kill": "worker-0"}]),
        (Fault(0, "freeze", 60.0), [{"kill": "worker-0"}]),
        (Fault(0, "stop-network", 60.0), []),
    ],
)
def test_who_stands_still_by_itself_when_training_is_over_is_released(
    make: Make, clock: Clock, fault: Fault, asked_for: list[dict[str, Any]]
) -> None:
    injection, asked = make(rule(0, Fault(0, "freeze"), 1e6))
    injection.training(clock.now - 30)
    injection.release()
    assert asked == []
    injection.told(fault.record("begin", [0], 0.0, 7) | {"pushes": 3})
    assert asked == asked_for

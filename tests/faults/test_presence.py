"""Devices that arrive and leave: when, by law and by trace."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import SpecError
from testbed.experiment.spec import Spec
from testbed.faults.presence import load_presence
from testbed.faults.rules import FaultRule
from testbed.faults.schedule import Schedule, TimedFault
from testbed.planning.plan import plan

NUMBERS = {f"worker-{i}": i for i in range(4)}
EXPERIMENT: dict[str, Any] = {
    "name": "presence",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 10},
    "algorithms": ["asgd"],
}


def rules(devices: dict[str, Any]) -> list[FaultRule]:
    spec = Spec.model_validate(EXPERIMENT | {"devices": {"workers": 4} | devices})
    return list(plan(spec)[0].settings.faults.rules)


def timed(devices: dict[str, Any], count: int) -> list[TimedFault]:
    return list(islice(Schedule(rules(devices), 1, 4).timed(), count))


LATE = [
    {"name": "core", "number": 2},
    {"name": "late", "number": 2, "arrives": "5s", "leaves": "10s", "returns": "2s"},
]


def test_a_device_arrives_leaves_and_returns_again_and_again() -> None:
    found = timed({"classes": LATE}, 6)
    assert [(one.time, one.fault.duration, one.fault.away) for one in found[::2]] == [
        (0.0, 5.0, "not-arrived"),
        (15.0, 2.0, "left"),
        (27.0, 2.0, "left"),
    ]
    assert {one.fault.kind for one in found} == {"kill"}
    assert len({one.devices for one in found}) == 2


def test_each_device_draws_its_own_times_and_without_returns_is_away_for_good() -> None:
    law = {"distribution": "exponential", "mean": "5s"}
    found = timed({"leaves": law}, 10)
    assert len({one.time for one in found}) == len(found) == 4
    assert all(one.fault.duration is None for one in found)
    assert found == timed({"leaves": law}, 10)


def test_a_longest_absence_that_is_drawn_has_no_bound() -> None:
    assert Schedule(rules({"classes": LATE}), 1, 4).longest_absence == float("inf")
    assert Schedule(rules({"leaves": "5s"}), 1, 4).longest_absence == 0


def test_a_file_says_who_arrives_and_leaves(tmp_path: Path) -> None:
    path = tmp_path / "presence.csv"
    path.write_text(
        "device,time,event\nworker-1,2,arrives\nworker-2,1,leaves\nworker-2,4,arrives\n"
        "worker-3,3,leaves\nworker-1,7.5,leaves\n"
    )
    assert load_presence(path, NUMBERS) == [(0, 1, 2), (1, 2, 3), (3, 3, None), (7.5, 1, None)]
    found = timed({"presence": str(path)}, 9)
    assert [one.fault.away for one in found] == ["not-arrived", "left", "left", "left"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("device,time\nworker-1,2\n", "needs the columns device, time, event: it has device, time"),
        ("device,time,event\n", "has no rows"),
        ("device,time,event\nworker-9,2,leaves\n", "line 2: there is no device 'worker-9'"),
        ("device,time,event\nworker-1,2,goes\n", "line 2: 'goes' is not arrives or leaves"),
        ("device,time,event\nworker-1,x,leaves\n", "line 2: 'x' is not a number of seconds"),
        ("device,time,event\nworker-1,2,leaves\nworker-1,3,leaves\n", "line 3: it leaves, but it"),
        ("device,time,event\nworker-1,2,arrives\nworker-1,3,arrives\n", "it is there"),
        ("device,time,event\nworker-1,2,leaves\nworker-1,2,arrives\n", "line 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    tmp_path: Path, content: str, text: str
) -> None:
    path = tmp_path / "presence.csv"
    path.write_text(content)
    with pytest.raises(SpecError, match=text):
        load_presence(path, NUMBERS)


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ({"arrives": "5s"}, "none of the workers is there when training begins"),
        ({"returns": "5s"}, "nothing returns that does not leave"),
        ({"leaves": "0s"}, "has the mean 0"),
        (
            {"leaves": {"mean": "5s", "changes": [{"at": "1s", "share": "1", "factor": 2}]}},
            "changes",
        ),
        ({"leaves": "5s", "presence": "/there.csv"}, "take one of them out"),
    ],
)
def test_times_that_make_no_sense_are_refused(devices: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, SpecError), match=text):
        rules(devices)


def test_peers_arrive_and_leave_as_workers_do() -> None:
    devices = {"devices": {"workers": 4, "classes": LATE}}
    workers = rules({"classes": LATE})
    always = {0, 1, 2, 3} - {device for rule in workers for device in rule.devices}
    peers = {"algorithms": ["all-to-all"], "evaluation": {"peer": min(always)}}
    (planned,) = plan(Spec.model_validate(EXPERIMENT | devices | peers))
    assert list(planned.settings.faults.rules) == workers

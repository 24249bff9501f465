"""The rules of a run's faults: what the faults of an experiment file become."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from testbed.device_names import SERVER_NUMBER
from testbed.experiment.sections.timing import TRACES
from testbed.experiment.spec import Spec
from testbed.faults.fault import Fault
from testbed.faults.rules import EachPush, FaultRule, FaultTrace, Intervals, TracedFault
from testbed.faults.schedule import Schedule
from testbed.planning.fault_rules import fault_rules
from testbed.planning.plan import plan

AT = {"time": "1s"}
CLASSES = {
    "workers": 20,
    "classes": [
        {"name": "slow", "share": "30%", "faults": [{"when": {"mean_time": "9s"}, "how": "kill"}]},
        {"name": "fast", "share": "70%"},
    ],
}


def faulty(*faults: Any, folder: Path = Path(), **changes: Any) -> Spec:
    data = {
        "name": "faulty",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 10},
        "algorithms": ["asgd"],
        "devices": {"workers": 20},
        "checkpoints": {"every": 5},
        "faults": list(faults),
    }
    return Spec.model_validate(data | changes, strict=True, context={TRACES: folder})


def rules(*faults: Any, **changes: Any) -> list[FaultRule]:
    spec = faulty(*faults, **changes)
    return fault_rules(spec, spec.devices.class_of(spec.seed))


def test_by_default_a_fault_strikes_each_worker_permanently() -> None:
    (rule,) = rules({"when": {"probability": 0.0004}, "how": "freeze"})
    assert rule.devices == list(range(20))
    assert rule.when == EachPush(0.0004)
    assert rule.fault == Fault(0, "freeze")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"when": {"time": "20s"}, "how": "kill", "lasting": "1500ms"}, Fault(0, "kill", 1.5)),
        (
            {"when": {"time": "5s"}, "how": {"kind": "slow", "factor": 5}},
            Fault(0, "slow", factor=5.0),
        ),
        (
            {"when": {"mean_time": "1min"}, "how": {"kind": "slow", "uplink": "1Mbit"}},
            Fault(0, "slow", uplink=1_000_000),
        ),
        (
            {"when": {"iteration": 3}, "how": {"kind": "corrupt", "share": "1%"}},
            Fault(0, "corrupt", share=0.01),
        ),
        ({"when": {"iteration": 3}, "how": {"kind": "freeze"}}, Fault(0, "freeze")),
    ],
)
def test_a_fault_resolves_to_its_kind_duration_and_options(
    fault: dict[str, Any], expected: Fault
) -> None:
    (rule,) = rules(fault)
    assert rule.fault == expected


def test_the_key_who_selects_the_devices() -> None:
    how = {"when": {"time": "1s"}, "how": "kill"}
    number, share, named, server = rules(
        how | {"who": {"number": 5}},
        how | {"who": {"share": "10%"}},
        how | {"who": {"devices": ["worker-7", "worker-3", "worker-7"]}},
        how | {"who": "server"},
    )
    assert len(set(number.devices)) == 5
    assert len(set(share.devices)) == 2
    assert named.devices == [3, 7]
    assert server.devices == [SERVER_NUMBER]
    assert server.fault.duration == 0  # started again at once
    again = rules(how | {"who": {"number": 5}}, seed=2)
    assert again[0].devices != number.devices


def test_servers_are_struck_by_name_and_the_first_where_none_is_named() -> None:
    how = {"when": {"mean_time": "1s"}, "how": "kill"}
    devices = {"workers": 20, "servers": 3}
    named, first = rules(
        how | {"who": {"devices": ["server-2", "server-1"]}},
        how | {"who": "server"},
        devices=devices,
    )
    assert named.devices == [SERVER_NUMBER - 1, SERVER_NUMBER - 2]
    assert first.devices == [SERVER_NUMBER]
    assert named.fault.duration == 0
    schedule = Schedule([named], 1, 20)
    timed = list(itertools.islice(schedule.timed(), 30))
    assert {struck for _, struck, _ in timed} == {(-2,), (-3,)}
    assert len({time for time, _, _ in timed}) == 30  # each server has times of its own
    assert schedule.longest_absence == 0.0  # of a worker


@pytest.mark.parametrize(
    ("who", "how", "text"),
    [
        (
            ["server-3"],
            "kill",
            "there is no 'server-3': the servers are server-0 to server-2",
        ),
        (["server"], "kill", "there is no 'server'"),
        (["server-1", "worker-1"], "kill", "give each a fault of its own"),
        (["server-1"], "freeze", "a server cannot have 'freeze': use `how: kill`"),
    ],
)
def test_what_cannot_strike_servers_is_refused(who: list[str], how: str, text: str) -> None:
    fault = {"when": {"time": "1s"}, "how": how, "who": {"devices": who}}
    with pytest.raises(ValidationError, match=re.escape(text)):
        faulty(fault, devices={"workers": 20, "servers": 3})


def test_the_rows_of_a_trace_become_faults(tmp_path: Path) -> None:
    (tmp_path / "struck.csv").write_text(
        "time, device, kind, lasting\n3.5, worker-2, , \n1, worker-0, freeze, 2\n"
    )
    fault = {"when": {"trace": "struck.csv"}, "how": "kill", "lasting": "9s"}
    (rule,) = rules(fault, folder=tmp_path)
    assert rule.when == FaultTrace(
        [
            TracedFault(3.5, None, 2, Fault(0, "kill", 9)),
            TracedFault(1, None, 0, Fault(0, "freeze", 2)),
        ]
    )


def test_a_fault_may_name_a_class_and_a_class_may_have_its_own_faults() -> None:
    fault = {"who": {"class": "slow"}, "when": AT, "how": "freeze"}
    members = faulty(devices=CLASSES).devices.class_of(seed=1)
    slow = [i for i in range(20) if members[i] == 0]
    by_name, own = rules(fault, devices=CLASSES)
    assert by_name.devices == own.devices == slow
    assert len(slow) == 6
    assert own.when == Intervals(9)
    assert own.fault == Fault(1, "kill")
    fast = {"who": {"class": "fast"}, "when": AT, "how": "freeze"}
    more = rules(fault, fast, devices=CLASSES)[-1]
    assert more.stream == own.stream  # one more top-level fault changes no draws of it


def test_peers_that_may_come_back_keep_checkpoints(tmp_path: Path) -> None:
    trace = tmp_path / "struck.csv"
    trace.write_text(
        "device,time,kind,lasting\nworker-1,1,kill,2\nworker-2,1,kill,\nworker-3,1,freeze,2\n"
    )
    classes = [
        {"name": "core", "number": 1},
        {"name": "late", "number": 1, "arrives": "1s"},
        {"name": "mobile", "number": 1, "leaves": "1s", "returns": "2s"},
        {"name": "early", "number": 1, "leaves": "1s"},
    ]
    of_class = faulty(devices={"workers": 4, "classes": classes})
    members = of_class.devices.class_of(of_class.seed)
    peers = {"algorithms": ["all-to-all"], "evaluation": {"peer": members.index(0)}}

    def keeps(*faults: Any, **changes: Any) -> list[bool]:
        spec = faulty(*faults, folder=tmp_path, **(peers | changes))
        found = plan(spec)[0].settings.faults
        return [found.steps_to_checkpoint(peer) == 5 for peer in range(4)]

    come_and_go = keeps(devices={"workers": 4, "classes": classes})
    assert come_and_go == [member in (1, 2) for member in members]
    by_trace = {"when": {"trace": str(trace)}, "how": "kill"}
    kept = keeps(by_trace, devices={"workers": 4}, evaluation={"peer": 0})
    assert kept == [False, True, False, False]

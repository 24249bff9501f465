"""The state of an interrupted run's faults, as read from its records."""

from typing import cast

from testbed.faults.fault import Fault
from testbed.messages.fault_changes import Kind, Phase, RecordedChange
from testbed.orchestrator.injection.earlier_faults import EarlierFaults

NUMBERS = {f"worker-{i}": i for i in range(4)}


def record(
    kind: Kind, phase: Phase, *devices: str, rule: int = 0, time: float = 1.0
) -> RecordedChange:
    change = Fault(rule, kind, 2.0).record(phase, [], time, 3)
    return cast("RecordedChange", {**change, "devices": list(devices), "host_time": time})


def test_a_fault_without_an_end_is_active() -> None:
    records = [
        record("partition", "begin", "worker-0", "worker-1", "worker-2"),
        record("kill", "begin", "server", rule=1),
        record("kill", "end", "server", rule=1),
        record("freeze", "begin", "worker-1", rule=2),
        record("freeze", "begin", "worker-3", rule=2, time=1.5),
        record("kill", "begin", "worker-1", rule=3, time=2.0),
        record("kill", "begin", "worker-2", rule=3, time=2.0),
        record("kill", "end", "worker-2", rule=3, time=4.0),
        record("kill", "begin", "worker-0", rule=4, time=5.0),
        record("kill", "begin", "server", rule=1, time=6.0),
    ]
    found = EarlierFaults.of(records, NUMBERS)
    assert found.server_kills == {"server": 2}
    assert found.dead == {0, 1}
    assert found.incarnations == {2: 1}
    lasting = {(one["fault"], one["rule"], tuple(one["devices"])) for one in found.lasting}
    # The freeze of worker-1 ended with its process; its link is still cut.
    assert lasting == {
        ("kill", 3, (1,)),
        ("kill", 4, (0,)),
        ("partition", 0, (0, 1, 2)),
        ("freeze", 2, (3,)),
    }


def test_no_fault_is_active_if_all_have_ended() -> None:
    both = [record("slow", phase, "worker-1", "worker-2") for phase in ("begin", "end")]
    assert EarlierFaults.of(both, NUMBERS) == EarlierFaults()

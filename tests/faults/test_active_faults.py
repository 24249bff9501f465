"""The active faults, compared with a list of all beginnings whose end has not come."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothetical
from hypothesis import strategies as st

from testbed.checkpoints.state_encoding import decode, encode
from testbed.device_names import SERVER_NUMBER
from testbed.faults.active_faults import ActiveFaults
from testbed.faults.fault import Fault
from testbed.messages.fault_changes import FaultChange, Kind

RULES: tuple[Kind, ...] = ("freeze", "stop-network", "freeze", "slow", "kill")
"""The kinds of five rules."""


def record(rule: int, phase: str, *devices: int, kind: Kind | None = None) -> FaultChange:
    fault = Fault(rule, kind or RULES[rule], duration=3.0)
    return fault.record("begin" if phase == "begin" else "end", devices, 1.5, 10)


def active(faults: ActiveFaults) -> list[tuple[int, int]]:
    return sorted((one["devices"][0], one["rule"]) for one in faults)


happenings = st.lists(
    st.tuples(
        st.sampled_from(["begin", "begin", "end", "killed"]),
        st.integers(0, len(RULES) - 1),
        st.sets(st.integers(SERVER_NUMBER, 3), min_size=1),
    ),
    max_size=40,
)


@hypothetical(deadline=None)  # the host may be busy
@given(happenings)
def test_a_fault_is_active_until_its_end_and_a_kill_ends_freezes(
    happen: list[tuple[str, int, set[int]]],
) -> None:
    faults = ActiveFaults()
    lasting: list[tuple[int, int]] = []
    for what, rule, devices in happen:
        workers = sorted(devices - {SERVER_NUMBER})
        if what == "killed":
            for worker in workers:
                faults.killed(worker)
            lasting = [
                (worker, of)
                for worker, of in lasting
                if worker not in workers or RULES[of] != "freeze"
            ]
            continue
        faults.take(record(rule, what, *sorted(devices)))
        for worker in workers if RULES[rule] != "kill" else ():
            if what == "begin":
                lasting.append((worker, rule))
            elif (worker, rule) in lasting:
                lasting.remove((worker, rule))
        assert active(faults) == sorted(lasting)


def test_an_active_fault_is_the_record_of_its_beginning_on_one_worker() -> None:
    faults = ActiveFaults()
    fault = Fault(2, "slow", 9.0, factor=5.0, uplink=1000)
    begun = fault.record("begin", [1, 3], 2.5, 7)
    faults.take(begun)
    assert list(faults) == [{**begun, "devices": [1]}, {**begun, "devices": [3]}]
    faults.take(fault.record("end", [1], 11.5, 9))
    assert list(faults) == [{**begun, "devices": [3]}]


@pytest.mark.parametrize("kind", ["stop-network", "partition", "slow"])
def test_link_faults_and_slow_faults_outlive_the_process(kind: Kind) -> None:
    faults = ActiveFaults()
    faults.take(record(0, "begin", 1, kind=kind))
    faults.killed(1)
    assert active(faults) == [(1, 0)]


def test_an_end_removes_only_faults_of_its_kind_from_a_trace_s_rule() -> None:
    faults = ActiveFaults()
    for kind in ("freeze", "stop-network"):
        faults.take(record(0, "begin", 1, kind=kind))
    faults.take(record(0, "end", 1, kind="stop-network"))
    assert [one["fault"] for one in faults] == ["freeze"]


def test_active_faults_are_restored_from_a_checkpoint() -> None:
    faults, restored = ActiveFaults(), ActiveFaults()
    faults.take(record(0, "begin", 0, 1))
    faults.take(record(3, "begin", 1))
    tree, arrays = encode(faults.state(), ())
    restored.restore(decode(tree, arrays, ()))
    assert list(restored) == list(faults)
    restored.take(record(0, "end", 0, 1))
    assert active(restored) == [(1, 3)]

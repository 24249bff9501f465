"""A fault and the records of its beginning and end."""

import pytest

from testbed.faults.fault import Fault


@pytest.mark.parametrize(
    "fault",
    [
        Fault(0, "kill"),
        Fault(2, "freeze", 1.5),
        Fault(1, "slow", 3.0, factor=2.0, uplink=10, downlink=20, cpus=0.5),
        Fault(4, "corrupt", 3.0, share=0.25),
    ],
)
def test_a_record_says_which_fault_it_is_about(fault: Fault) -> None:
    record = fault.record("begin", (3, 5), 1.25, 70)
    assert (record["devices"], record["time"], record["iteration"]) == ([3, 5], 1.25, 70)
    assert Fault.of_record(record) == fault

"""Descriptions of faults, for logs and for people."""

from collections.abc import Sequence

from testbed.device_names import is_peer
from testbed.messages.fault_changes import AnyFaultChange

_BEGUN = {
    "freeze": "frozen",
    "kill": "killed",
    "stop-network": "link down",
    "partition": "cut off from the server",
    "slow": "slowed down",
    "corrupt": "some frames damaged",
}
_OVER = {
    "freeze": "thawed",
    "kill": "back",
    "stop-network": "link up again",
    "partition": "no longer cut off",
    "slow": "as fast as before",
    "corrupt": "frames whole again",
}
_FEW = 5


def describe(record: AnyFaultChange, names: Sequence[str]) -> str:
    """Describe the record of a fault in one line.

    Args:
        record: the record, as ``Fault.record`` makes it.
        names: the names of the devices that it strikes.
    """
    who = ", ".join(names[:_FEW])
    if len(names) > _FEW:
        who += f" and {len(names) - _FEW} more"
    if record.get("away"):
        return f"{who}: {_presence(record)}"
    if record["phase"] == "end":
        return f"{who}: {_OVER[record['fault']]}"
    seconds = record["duration"]
    how_long = "for good" if seconds is None else f"for {seconds:g} s"
    begun = _BEGUN[record["fault"]]
    if record["fault"] == "partition" and is_peer(names[0]):
        begun = "cut off from the others"
    return f"{who}: {begun} {how_long}"


def _presence(record: AnyFaultChange) -> str:
    """Describe an arrival or a departure."""
    if record["phase"] == "end":
        return "arrived"
    return "left" if record["away"] == "left" else "not there yet"

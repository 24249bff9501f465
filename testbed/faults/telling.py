"""Faults in words, for logs and for people."""

from collections.abc import Mapping, Sequence
from typing import Any

_BEGUN = {
    "freeze": "is frozen",
    "kill": "is killed",
    "stop-network": "has no link",
    "partition": "is cut off from the server",
    "slow": "is slow",
    "corrupt": "sends damaged frames",
}
_OVER = {
    "freeze": "goes on",
    "kill": "is back",
    "stop-network": "has its link again",
    "partition": "reaches the server again",
    "slow": "is as fast as before",
    "corrupt": "sends whole frames again",
}
_FEW = 5


def told(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """What a record says, in a line.

    Args:
        record: as ``Fault.record`` makes it.
        names: of whom it strikes.
    """
    who = ", ".join(names[:_FEW])
    if len(names) > _FEW:
        who += f" and {len(names) - _FEW} more"
    if record["phase"] == "end":
        return f"{who}: {_OVER[record['fault']]}"
    seconds = record["duration"]
    how_long = "for good" if seconds is None else f"for {seconds:g} s"
    return f"{who}: {_BEGUN[record['fault']]} {how_long}"

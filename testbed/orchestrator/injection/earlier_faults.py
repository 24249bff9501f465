"""The state of an interrupted run's faults, from its records."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from testbed.device_names import is_server
from testbed.faults.active_faults import ActiveFaults
from testbed.faults.fault import Fault
from testbed.messages.fault_changes import FaultChange, RecordedChange


@dataclass(slots=True)
class EarlierFaults:
    """The faults of all devices until the run was interrupted.

    Attributes:
        server_kills: how often each server was killed, by name.
        incarnations: how often each worker, by number, was killed and came back.
        dead: the workers that were killed and have not come back.
        lasting: the records of faults that have not ended, with the numbers of the devices on which
            they are still active.
    """

    server_kills: Counter[str] = field(default_factory=Counter)
    incarnations: Counter[int] = field(default_factory=Counter)
    dead: set[int] = field(default_factory=set)
    lasting: list[FaultChange] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[RecordedChange], numbers: Mapping[str, int]) -> Self:
        """Read the records of a run's faults.

        Args:
            records: in order, with the names of devices.
            numbers: the workers' numbers, by name.
        """
        found, active = cls(), ActiveFaults()
        kills: dict[int, FaultChange] = {}
        for record in records:
            begins = record["phase"] == "begin"
            if any(map(is_server, record["devices"])):
                found.server_kills.update(record["devices"] if begins else ())
                continue
            struck = [numbers[name] for name in record["devices"]]
            fault, at = Fault.of_record(record), (record["time"], record["iteration"])
            active.take(fault.record(record["phase"], struck, *at))
            for number in struck if record["fault"] == "kill" else ():
                if begins:
                    active.killed(number)
                    kills[number] = fault.record("begin", [number], *at)
                else:
                    del kills[number]
                    found.incarnations[number] += 1
        found.dead = set(kills)
        found.lasting = _together([*kills.values(), *active])
        return found


def _together(records: Iterable[FaultChange]) -> list[FaultChange]:
    """Merge records of the same fault that began at the same time into one."""
    merged: dict[tuple[str, int, float], FaultChange] = {}
    for record in records:
        key = record["fault"], record["rule"], record["time"]
        one = merged.setdefault(key, {**record, "devices": []})
        one["devices"] += record["devices"]
    return list(merged.values())

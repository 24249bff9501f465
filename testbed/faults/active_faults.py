"""The faults that are active on each worker, by the records that the clock reports."""

from collections.abc import Collection, Iterator

from testbed.checkpoints.stateful import Stateful
from testbed.device_names import SERVER_NUMBER
from testbed.messages.fault_changes import FaultChange, Kind


class ActiveFaults(Stateful):
    """The active faults of one run, except those that kill."""

    def __init__(self) -> None:
        self._active: list[tuple[int, FaultChange]] = []

    def take(self, record: FaultChange) -> None:
        """Take the record of a fault that has begun or ended."""
        if record["fault"] == "kill":
            return
        for worker in record["devices"]:
            if worker <= SERVER_NUMBER:
                continue
            if record["phase"] == "begin":
                self._active.append((worker, {**record, "devices": [worker]}))
            else:
                self._end(worker, record["fault"], record["rule"])

    def _end(self, worker: int, kind: str, rule: int) -> None:
        """Remove the worker's first active fault of a kind and a rule.

        The rule is not enough: a trace's rule has faults of several kinds.
        """
        for place, (struck, begun) in enumerate(self._active):
            if struck == worker and (begun["fault"], begun["rule"]) == (kind, rule):
                del self._active[place]
                return

    def killed(self, worker: int) -> None:
        """Remove the freezes of a worker that was killed: they end with its process."""
        self._active = [
            (struck, record)
            for struck, record in self._active
            if struck != worker or record["fault"] != "freeze"
        ]

    def under(self, kinds: Collection[Kind]) -> set[int]:
        """Return the workers on which a fault of one of these kinds is active."""
        return {worker for worker, record in self._active if record["fault"] in kinds}

    def __iter__(self) -> Iterator[FaultChange]:
        """Iterate over the records of the faults' beginnings, one for each worker."""
        return (record for _, record in self._active)

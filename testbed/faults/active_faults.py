"""The faults that are active on each worker, by the records that the clock reports."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from testbed.checkpoints.stateful import Stateful
from testbed.device_names import SERVER_NUMBER
from testbed.faults.fault import Kind


class ActiveFaults(Stateful):
    """The active faults of one run, except those that kill."""

    def __init__(self) -> None:
        self._lasting: list[tuple[int, dict[str, Any]]] = []

    def told(self, record: Mapping[str, Any]) -> None:
        """Take the record of a fault that has begun or ended."""
        if record["fault"] == "kill":
            return
        # The rule is not enough: a trace's rule has faults of several kinds.
        kind, rule = record["fault"], record["rule"]
        for worker in record["devices"]:
            if worker == SERVER_NUMBER:
                continue
            if record["phase"] == "begin":
                self._lasting.append((worker, {**record, "devices": [worker]}))
            else:
                self._forget(
                    worker, lambda one: (one["fault"], one["rule"]) == (kind, rule), once=True
                )

    def killed(self, worker: int) -> None:
        """Remove the freezes of a worker that was killed: they end with its process."""
        self._forget(worker, lambda one: one["fault"] == "freeze", once=False)

    def _forget(self, worker: int, wanted: Any, *, once: bool) -> None:
        kept = []
        found = False
        for whose, record in self._lasting:
            if whose == worker and wanted(record) and not (once and found):
                found = True
            else:
                kept.append((whose, record))
        self._lasting = kept

    def under(self, kinds: Collection[Kind]) -> set[int]:
        """Return the workers on which a fault of one of these kinds is active."""
        return {worker for worker, record in self._lasting if record["fault"] in kinds}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the records of the faults' beginnings, one for each worker."""
        return (record for _, record in self._lasting)

"""The log of a run's faults, in which each beginning and each end stands once."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from testbed.device_names import struck_name
from testbed.faults.descriptions import describe
from testbed.runs.deduplication import Deduplication
from testbed.telemetry.entries import FaultChanged
from testbed.telemetry.run_log import RunLog

Event: TypeAlias = Callable[[str, str, str | None], None]
"""Records an event of a run: level, text, device."""


class FaultLog:
    """The faults of one run as records of its log and as events."""

    def __init__(
        self,
        log: RunLog,
        event: Event,
        host_seconds: Callable[[], float],
        deduplication: Deduplication,
        *,
        servers: int,
    ) -> None:
        """Prepare.

        Args:
            servers: the number of parameter servers; 0 where peers train.
            event: records an event of the run.
            host_seconds: returns the seconds of the host's clock since training began.
            deduplication: drops the records that a restored server produces a second time.
        """
        self._log = log
        self._event = event
        self._host_seconds = host_seconds
        self._deduplication = deduplication
        self._servers = servers

    def write(self, record: Mapping[str, Any]) -> None:
        """Write the record of a fault's beginning or end, which has the devices' numbers."""
        if not self._deduplication.is_new("faults"):
            return
        names = [struck_name(number, self._servers) for number in record["devices"]]
        self._log.take(FaultChanged(record, names, self._host_seconds()))
        self._event("info", describe(record, names), names[0] if len(names) == 1 else None)

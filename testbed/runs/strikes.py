"""The faults of a run as entries of its log, in which each beginning and each end stands once."""

from collections.abc import Callable

from testbed.device_names import struck_name
from testbed.messages.fault_changes import FaultChange
from testbed.runs.deduplication import Deduplication
from testbed.telemetry.entries import FaultChanged
from testbed.telemetry.run_log import RunLog


class Strikes:
    """The faults of one run."""

    def __init__(
        self,
        log: RunLog,
        host_seconds: Callable[[], float],
        deduplication: Deduplication,
        *,
        servers: int,
        workers: int,
    ) -> None:
        """Prepare.

        Args:
            servers: the number of parameter servers; 0 where peers train.
            workers: the number of workers or peers.
            host_seconds: returns the seconds of the host's clock since training began.
            deduplication: drops the records that a restored server produces a second time.
        """
        self._log = log
        self._host_seconds = host_seconds
        self._deduplication = deduplication
        self._servers, self._workers = servers, workers

    def write(self, record: FaultChange) -> None:
        """Write the record of a fault's beginning or end, which has the devices' numbers."""
        if self._deduplication.is_new("faults"):
            names = [
                struck_name(number, self._servers, self._workers) for number in record["devices"]
            ]
            self._log.take(FaultChanged(record, names, self._host_seconds()))

"""``utilisation.parquet``: how busy each device of a run was, its processor and its link.

A row for each server, worker, peer and aggregator, and for each machine with a co-located server; small
enough to be written at once at the run's end.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

NAME = "utilisation.parquet"
"""Its name in a run directory."""


@dataclass(frozen=True, slots=True)
class DeviceUtilisation:
    """One device. What is not known, or has no limit to be a share of, is None.

    Attributes:
        device: its name.
        part: ``server``, ``worker``, ``peer``, ``aggregator`` or ``machine``.
        machine: the machine that it is on, if it shares one, whose link it then uses.
        cpu_source: ``virtual clock``, ``control group``, ``process`` or ``container``; None if its
            processor time is not known.
        cpu_window: the seconds of training in which the processor time passed.
        cpu_seconds: under the virtual clock the seconds in which it computed gradients or, of servers
            whose messages cost time, handled messages; under the wall clock the processor time of its
            processes.
        cpu_limit: the processors that it may use; 1 if the experiment does not limit them, since a role
            computes in one thread.
        cpu_utilisation: ``cpu_seconds`` ÷ (``cpu_window`` × ``cpu_limit``).
        bytes_source: ``virtual clock``, ``counted`` (over the whole run) or ``sampled`` (until the last
            sample of a run that was cut short); None if its bytes are not known.
        bytes_window: the seconds of training in which the bytes passed.
        sent_bytes, received_bytes: bytes over its link, headers included.
        uplink_rate, downlink_rate: bit/s as asked.
        uplink_utilisation, downlink_utilisation: 8 × bytes ÷ (rate × ``bytes_window``).
        idle_watts, busy_watts, sent_joules, received_joules: its power, as ``DevicePower`` has it.
        on_seconds: the seconds of training for which it was switched on.
        joules: its energy; None if its power, its processor time or its bytes are not known.
        message_wait: the mean seconds for which messages that had arrived at a server waited for its
            processor; None unless messages cost time.
    """

    device: str
    part: str
    machine: str | None = None
    cpu_source: str | None = None
    cpu_window: float | None = None
    cpu_seconds: float | None = None
    cpu_limit: float | None = None
    cpu_utilisation: float | None = None
    bytes_source: str | None = None
    bytes_window: float | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    uplink_rate: int | None = None
    downlink_rate: int | None = None
    uplink_utilisation: float | None = None
    downlink_utilisation: float | None = None
    idle_watts: float | None = None
    busy_watts: float | None = None
    sent_joules: float | None = None
    received_joules: float | None = None
    on_seconds: float | None = None
    joules: float | None = None
    message_wait: float | None = None


_TYPES = {
    **dict.fromkeys(("device", "part", "machine", "cpu_source", "bytes_source"), pa.string()),
    **dict.fromkeys(("sent_bytes", "received_bytes", "uplink_rate", "downlink_rate"), pa.int64()),
}
_SCHEMA = pa.schema(
    [(name, _TYPES.get(name, pa.float64())) for name in DeviceUtilisation.__dataclass_fields__]
)


def write(directory: Path, rows: Iterable[DeviceUtilisation]) -> None:
    """Write the table into a run directory, in place of an earlier one."""
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_SCHEMA)
    parquet.write_table(table, directory / NAME)

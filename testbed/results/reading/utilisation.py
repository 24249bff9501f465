"""``utilisation.parquet``: how busy each device of a run was."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from testbed.results.reading.journals import NoRunError

NAME = "utilisation.parquet"


@dataclass(frozen=True, slots=True)
class Utilisation:
    """One device: its processor and its link over the time of training; what is not known is None.

    Attributes:
        device: its name.
        part: ``server``, ``worker``, ``peer``, ``aggregator`` or ``machine``.
        machine: the machine that it is on, if it shares one, whose link it then uses.
        cpu_source: ``virtual clock``, ``control group``, ``process`` or ``container``.
        cpu_window: the seconds of training in which the processor time passed.
        cpu_seconds: under the virtual clock the seconds in which it computed gradients; under the wall
            clock its processor time.
        cpu_limit: the processors that it may use; 1 if the experiment does not limit them.
        cpu_utilisation: the share of them that was in use.
        bytes_source: ``virtual clock``, ``counted`` or ``sampled``.
        bytes_window: the seconds of training in which the bytes passed.
        sent_bytes, received_bytes: bytes over its link, headers included.
        uplink_rate, downlink_rate: bit/s as asked.
        uplink_utilisation, downlink_utilisation: the share of the rates that was in use.
    """

    device: str
    part: str
    machine: str | None
    cpu_source: str | None
    cpu_window: float | None
    cpu_seconds: float | None
    cpu_limit: float | None
    cpu_utilisation: float | None
    bytes_source: str | None
    bytes_window: float | None
    sent_bytes: int | None
    received_bytes: int | None
    uplink_rate: int | None
    downlink_rate: int | None
    uplink_utilisation: float | None
    downlink_utilisation: float | None


def read_utilisation_table(directory: Path) -> Any:
    """Return the table of a run directory as a ``pyarrow.Table``; None if the run left none.

    Raises:
        NoRunError: it cannot be read, or lacks a column.
    """
    import pyarrow as pa
    from pyarrow import parquet

    path = directory / NAME
    try:
        # Without threads, as in ``journals``.
        file = parquet.ParquetFile(pa.BufferReader(path.read_bytes()), pre_buffer=False)
        return file.read(columns=[one.name for one in fields(Utilisation)], use_threads=False)
    except FileNotFoundError:
        return None
    except pa.ArrowInvalid as error:
        raise NoRunError(f"{path} cannot be read: {error}") from None


def read_utilisation(directory: Path) -> tuple[Utilisation, ...]:
    """Read the rows of a run directory; an older run, or one that was killed, has none.

    Raises:
        NoRunError: the table cannot be read, or lacks a column.
    """
    table = read_utilisation_table(directory)
    try:
        return () if table is None else tuple(Utilisation(**row) for row in table.to_pylist())
    except TypeError as error:
        raise NoRunError(f"{directory / NAME} cannot be read: {error}") from None

"""``utilisation.parquet``: how busy each device of a run was."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from testbed.results.reading.journals import read_parquet, whole
from testbed.results.reading.run_files import Text, Whole

NAME = "utilisation.parquet"


@dataclass(frozen=True, slots=True, config=ConfigDict(allow_inf_nan=False))
class Utilisation:
    """One device: its processor and its link over the time of training; what is not known is None.

    Attributes:
        device: its name.
        part: ``server``, ``worker``, ``peer``, ``aggregator`` or ``machine``.
        machine: the machine that it is on, if it shares one, whose link it then uses.
        cpu_source: ``virtual clock``, ``control group``, ``process`` or ``container``.
        cpu_window: the seconds of training in which the processor time passed.
        cpu_seconds: under the virtual clock the seconds in which it computed gradients or, of servers
            whose messages cost time, handled messages; under the wall clock its processor time.
        cpu_limit: the processors that it may use; 1 if the experiment does not limit them.
        cpu_utilisation: the share of them that was in use.
        bytes_source: ``virtual clock``, ``counted`` or ``sampled``.
        bytes_window: the seconds of training in which the bytes passed.
        sent_bytes, received_bytes: bytes over its link, headers included.
        uplink_rate, downlink_rate: bit/s as asked.
        uplink_utilisation, downlink_utilisation: the share of the rates that was in use.
        idle_watts, busy_watts: its power while it is on, and while one of its processors computes.
        sent_joules, received_joules: its energy for each byte, in addition.
        on_seconds: the seconds of training for which it was switched on.
        joules: its energy.
        message_wait: the mean seconds for which messages that had arrived waited for its processor.
    """

    device: Text
    part: Text
    machine: Text | None
    cpu_source: Text | None
    cpu_window: float | None
    cpu_seconds: float | None
    cpu_limit: float | None
    cpu_utilisation: float | None
    bytes_source: Text | None
    bytes_window: float | None
    sent_bytes: Whole | None
    received_bytes: Whole | None
    uplink_rate: Whole | None
    downlink_rate: Whole | None
    uplink_utilisation: float | None
    downlink_utilisation: float | None
    idle_watts: float | None = None
    busy_watts: float | None = None
    sent_joules: float | None = None
    received_joules: float | None = None
    on_seconds: float | None = None
    joules: float | None = None
    message_wait: float | None = None


_NEWER = [one.name for one in fields(Utilisation) if one.default is None]
"""The columns that tables of earlier versions lack."""


def read_utilisation_table(directory: Path) -> Any:
    """Return the table of a run directory as a ``pyarrow.Table``; None if the run left none.

    Raises:
        NoRunError: it cannot be read, or lacks a column.
    """
    path = directory / NAME
    try:
        with whole(path):
            table = read_parquet(path)
            names = [one.name for one in fields(Utilisation)]
            return table.select([n for n in names if n not in _NEWER or n in table.column_names])
    except FileNotFoundError:
        return None


def read_utilisation(directory: Path) -> tuple[Utilisation, ...]:
    """Read the rows of a run directory; an older run, or one that was killed, has none.

    Raises:
        NoRunError: the table cannot be read, or lacks a column.
    """
    table = read_utilisation_table(directory)
    if table is None:
        return ()
    with whole(directory / NAME):
        return tuple(TypeAdapter(list[Utilisation]).validate_python(table.to_pylist()))

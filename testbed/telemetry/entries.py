"""The entries of a run: what happens in it, as its log takes it and each reader of the log sees it.

Roles, clocks, orchestrator and simulator say what happens by these. The log writes each entry down and
hands it on (``RunLog.take``); outcome and metrics are readers, of a run under way and of one that is
replayed from its directory alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.messages.fault_changes import AnyFaultChange
from testbed.messages.reports import Suspected, Welcomed
from testbed.telemetry.event_kinds import EventKind


@dataclass(frozen=True, slots=True)
class Updates:
    """Pushes that servers took in, or steps of peers.

    Attributes:
        rows: at least one, of ``records.UPDATE``, applied or not.
        version: that which they led to.
    """

    rows: npt.NDArray[Any]
    version: int


@dataclass(frozen=True, slots=True)
class Diagnoses:
    """The algorithm's diagnostics.

    Attributes:
        values: shape (updates, diagnostics), of each update up to ``version``; at least one.
    """

    values: npt.NDArray[np.float64]
    version: int


@dataclass(frozen=True, slots=True)
class EvaluationMade:
    """An evaluation of which everything is known; see ``EvaluationLog.append`` for its row."""

    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EnergyUsed:
    """The energy that all devices whose power is known have used.

    Attributes:
        time: seconds of the run's clock since training began.
        joules: until then.
    """

    time: float
    joules: float


@dataclass(frozen=True, slots=True)
class FaultChanged:
    """A fault begins or ends.

    Attributes:
        record: what the clock or the server reports of it.
        devices: the devices' names.
        host_time: seconds of the host's clock since training began.
    """

    record: AnyFaultChange
    devices: Sequence[str]
    host_time: float


@dataclass(frozen=True, slots=True)
class Noted:
    """A sentence for the person who reads the run's events.

    Attributes:
        level: ``info``, ``warning`` or ``error``.
        device: the name of that which it is about, if it is about one.
    """

    level: str
    text: str
    device: str | None = None
    kind: EventKind = EventKind.REMARK


RunEntry: TypeAlias = (
    Updates | Diagnoses | EvaluationMade | EnergyUsed | FaultChanged | Suspected | Welcomed | Noted
)


class Reader(Protocol):
    """A reader of a run's log, which it shows the run's entries in their order."""

    def take(self, entry: RunEntry) -> None:
        """Take an entry; one of no meaning to the reader is left out."""

"""Entries: the events of a run that the services of servers and peers return, in their order.

A service does not know what records them. Its caller passes them on before it calls the service again,
because the parameters to be evaluated are the service's own, and change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from testbed.messages.reports import Suspected, Welcomed
from testbed.telemetry.update_rows import UpdateRow


@dataclass(frozen=True, slots=True)
class UpdateEntry:
    """A push that was taken in, or a step of a peer, and the version that it led to."""

    row: UpdateRow
    version: int


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The algorithm's diagnostics, in the order of their names, at the update that made ``version``."""

    values: Sequence[float]
    version: int


@dataclass(frozen=True, slots=True)
class EvaluationPoint:
    """The parameters are to be evaluated as they are now.

    Attributes:
        ledger: payload and message bytes so far, and those of them that crossed no link.
        last: True if the run's updates are complete.
    """

    version: int
    ledger: tuple[int, int, int, int]
    last: bool


@dataclass(frozen=True, slots=True)
class Connected:
    """A caller has greeted a role that serves; ``there`` of them are there now."""

    there: int


@dataclass(frozen=True, slots=True)
class TrainingBegan:
    """Training begins, or goes on."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence for the person who reads the run's events.

    Attributes:
        is_error: True if the run cannot be complete.
        of_role: True if it concerns the role itself, and not the run.
    """

    text: str
    is_error: bool = False
    of_role: bool = False


Entry: TypeAlias = (
    UpdateEntry
    | Diagnosed
    | EvaluationPoint
    | Suspected
    | Welcomed
    | Connected
    | TrainingBegan
    | Remark
)

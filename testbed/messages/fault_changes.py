"""The records of faults that begin and end, as they are told between processes and kept in a file."""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict, get_args

Kind: TypeAlias = Literal["freeze", "kill", "stop-network", "partition", "slow", "corrupt"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""All kinds, in the order of tables and legends."""
UNREACHABLE: tuple[Kind, ...] = ("stop-network", "partition")
"""Kinds of faults during which a device can neither send nor receive over its link."""
SILENT: tuple[Kind, ...] = ("freeze", *UNREACHABLE)
"""Kinds of faults during which a device sends nothing, though it is not dead."""
Absence: TypeAlias = Literal["", "not-arrived", "left"]
Phase: TypeAlias = Literal["begin", "end"]


class AnyFaultChange(TypedDict):
    """The keys of every record of a fault's beginning or end; an option is there if it is given.

    Attributes:
        fault: the kind.
        rule, duration, factor, uplink, downlink, cpus, share, away: the fault's; see ``Fault``.
        time: in seconds of the run's clock since training began.
        iteration: the model's version at that time.
    """

    fault: Kind
    phase: Phase
    rule: int
    time: float
    iteration: int
    duration: float | None
    factor: NotRequired[float]
    uplink: NotRequired[int | None]
    downlink: NotRequired[int | None]
    cpus: NotRequired[float | None]
    share: NotRequired[float]
    away: NotRequired[Absence]


class FaultChange(AnyFaultChange):
    """The record of a fault's beginning or end, as the clock, a server or a worker tells it.

    Attributes:
        devices: the numbers of the devices that it strikes.
        pushes: of a worker that is struck after one of its own pushes, their number.
        others: of a killed peer that comes back, those that it calls.
    """

    devices: list[int]
    pushes: NotRequired[int]
    others: NotRequired[Sequence[int]]


class RecordedChange(AnyFaultChange):
    """The same as a line of ``faults.jsonl``.

    Attributes:
        devices: the names of the devices.
        host_time: seconds of the host's clock since training began.
    """

    devices: list[str]
    host_time: float

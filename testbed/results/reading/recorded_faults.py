"""The faults of a run: which devices they struck, when, and for how long.

``faults.jsonl`` has a line for a fault's beginning and another for its end. They are paired here, one
``FaultOccurrence`` for each device struck. A line that is cut off or not understood is left out, and so
is an end without a beginning. An occurrence without an end lasted for good, or still lasts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.device_names import is_aggregator, is_server
from testbed.messages.fault_changes import KINDS
from testbed.results.reading.journals import read_json_lines
from testbed.results.reading.run_files import FaultRecord

FAULTS = "faults.jsonl"
AWAY = "away"
"""The kind of a device that has not arrived yet or has left, which is no fault."""
CRASHES = ("freeze", "kill")
"""The kinds that take a device out of the run until they are over."""


@dataclass(frozen=True, slots=True)
class RunTime:
    """A point in time of a run.

    Attributes:
        iteration: the version at that time.
        time: seconds of the run's clock since training began; ``host_time`` those of the host's.
    """

    iteration: int
    time: float
    host_time: float


@dataclass(frozen=True, slots=True)
class FaultOccurrence:
    """A fault that struck one device.

    Attributes:
        kind: one of ``KINDS``.
        rule: the place of its rule in the experiment file's list, from 0.
        device: ``worker-3``, ``aggregator-0``, ``server`` or, of several, ``server-1``.
        ended: its end; None if none is recorded.
    """

    kind: str
    rule: int
    device: str
    began: RunTime
    ended: RunTime | None = None


def read_faults(directory: Path) -> tuple[FaultOccurrence, ...]:
    """Return the occurrences of a run in the order in which they began; none without the file.

    Raises:
        NoRunError: the file cannot be read.
    """
    return paired(read_json_lines(directory / FAULTS, FaultRecord))


def paired(records: Iterable[FaultRecord]) -> tuple[FaultOccurrence, ...]:
    """Return an occurrence for each device of each beginning, with the end that belongs to it.

    If a rule struck a device several times, the first to begin is the first to end; a kill ends a
    freeze.
    """
    occurrences: list[FaultOccurrence] = []
    pending: dict[str, dict[tuple[str, int], list[int]]] = {}
    for record in records:
        moment = RunTime(record.iteration, record.time, record.host_time)
        key = (AWAY if record.away else record.fault, record.rule)
        for device in record.devices:
            own = pending.setdefault(device, {})
            ended: list[int] = []
            if record.phase == "begin":
                if record.fault == "kill":
                    frozen = [open_key for open_key in own if open_key[0] == "freeze"]
                    ended = [i for open_key in frozen for i in own.pop(open_key)]
                own.setdefault(key, []).append(len(occurrences))
                occurrences.append(FaultOccurrence(*key, device, moment))
            elif own.get(key):
                ended = [own[key].pop(0)]
            for i in ended:
                occurrences[i] = replace(occurrences[i], ended=moment)
    return tuple(occurrences)


def in_order(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return kinds in the order of tables and legends, that of ``KINDS``; others come after them."""
    places: dict[str, int] = {kind: i for i, kind in enumerate(KINDS)}
    return tuple(sorted(kinds, key=lambda kind: (places.get(kind, len(KINDS)), kind)))


def struck(occurrences: Iterable[FaultOccurrence]) -> dict[str, int]:
    """Count the different devices that each kind struck."""
    devices: dict[str, set[str]] = {}
    for occurrence in occurrences:
        devices.setdefault(occurrence.kind, set()).add(occurrence.device)
    return {kind: len(devices[kind]) for kind in in_order(devices)}


def went_down(occurrences: Iterable[FaultOccurrence]) -> int:
    """Count the workers that were frozen or killed, for any length of time."""
    return len({occurrence.device for occurrence in _of_workers(occurrences)})


def crashed(occurrences: Iterable[FaultOccurrence]) -> int:
    """Count the workers that were frozen or killed and did not come back."""
    return len(
        {occurrence.device for occurrence in _of_workers(occurrences) if occurrence.ended is None}
    )


def alive(
    occurrences: Sequence[FaultOccurrence], workers: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the iterations and times at which the number of workers alive changed, and the number.

    A worker is alive if it is there, and neither frozen nor killed. The first entry is the beginning,
    with all workers unless some were struck there; all arrays have the shape (changes + 1,). Times are
    seconds of the run's clock. An iteration comes several times if the number changed at several
    moments of it, and none is before that of an earlier moment, also where a restored server repeats
    some.
    """
    down_or_away = [*_of_workers(occurrences), *(s for s in occurrences if s.kind == AWAY)]
    turns = [(s.began, 0, s.device) for s in down_or_away]
    turns += [(s.ended, 1, s.device) for s in down_or_away if s.ended is not None]
    down: dict[str, int] = {}
    counts = {0.0: (0, workers)}
    latest = 0
    for moment, over, device in sorted(turns, key=lambda turn: (turn[0].time, *turn[1:])):
        down[device] = down.get(device, 0) + (-1 if over else 1)
        if not down[device]:
            del down[device]
        latest = max(latest, moment.iteration)
        counts[moment.time] = latest, workers - len(down)
    found = np.array(list(counts.values()))
    return found[:, 0], np.array(list(counts)), found[:, 1]


def _of_workers(occurrences: Iterable[FaultOccurrence]) -> list[FaultOccurrence]:
    return [
        s
        for s in occurrences
        if s.kind in CRASHES and not (is_server(s.device) or is_aggregator(s.device))
    ]

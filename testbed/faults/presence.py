"""When devices arrive and leave: absences, which the machinery of faults carries out as kills that end.

An absence is no fault: its records say ``away``. Each device draws from streams of its own, so that one
more device, or a longer run, changes no other's times.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from testbed.durations import Durations
from testbed.errors import SpecError
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Laws
from testbed.trace_files import parse_seconds, read_rows

SHORTEST = 0.001
"""The least seconds for which a device is there, or away: laws may draw 0."""
_COLUMNS = ("device", "time", "event")
"""Those of a trace of presence."""


def absences(rule: FaultRule, seed: int, devices: int) -> list[Iterator[tuple[float, int, Fault]]]:
    """Return the absences of each device of a rule: when one begins, the device, and its duration.

    Args:
        rule: one with laws.
        devices: the number of all devices of the run.

    Raises:
        SpecError: a law's trace cannot be used.
    """
    assert isinstance(rule.when, Laws)
    made = {
        key: Durations.of(section, seed, key, devices)
        for key in ("arrives", "leaves", "returns")
        if (section := getattr(rule.when, key)) is not None
    }
    return [_of_device(device, made, rule.fault) for device in rule.devices]


def _of_device(
    device: int, made: Mapping[str, Durations], fault: Fault
) -> Iterator[tuple[float, int, Fault]]:
    drawn = {key: durations.of_device(device) for key, durations in made.items()}
    now = drawn["arrives"].sample(0.0) if "arrives" in drawn else 0.0
    if now > 0:
        yield 0.0, device, replace(fault, duration=now, away="not-arrived")
    while "leaves" in drawn:
        now += max(SHORTEST, drawn["leaves"].sample(0.0))
        if "returns" not in drawn:
            yield now, device, replace(fault, duration=None)
            return
        lasting = max(SHORTEST, drawn["returns"].sample(0.0))
        yield now, device, replace(fault, duration=lasting)
        now += lasting


def load_presence(path: Path, devices: Mapping[str, int]) -> list[tuple[float, int, float | None]]:
    """Read a trace; return absences: when one begins, the device, and its seconds (None: for good).

    A device whose first event is *arrives* is away until then.

    Args:
        devices: the numbers of the devices that it may name.

    Raises:
        SpecError: the file cannot be read, or a row makes no sense.
    """
    events: dict[int, list[tuple[float, str, str]]] = {}
    for where, cells in read_rows(path, partial(_check, path)):
        if cells["device"] not in devices:
            raise SpecError(
                f"{where}: there is no device '{cells['device'][:40]}': they are worker-0 to "
                f"worker-{len(devices) - 1}"
            )
        if cells["event"] not in ("arrives", "leaves"):
            raise SpecError(f"{where}: '{cells['event'][:40]}' is not arrives or leaves")
        time = parse_seconds(cells["time"], where)
        events.setdefault(devices[cells["device"]], []).append((time, cells["event"], where))
    if not events:
        raise SpecError(f"the trace {path} has no rows: give it one for each arrival or departure")
    return sorted(
        (begin, device, lasting)
        for device, own in events.items()
        for begin, lasting in _absences(sorted(own))
    )


def _check(path: Path, heading: Sequence[str]) -> None:
    if sorted(heading) != sorted(_COLUMNS):
        raise SpecError(
            f"the trace {path} needs the columns {', '.join(_COLUMNS)}: it has "
            f"{', '.join(heading)[:100] or 'no column at all'}"
        )


def _absences(events: list[tuple[float, str, str]]) -> list[tuple[float, float | None]]:
    """Return when a device's absences begin, and how long they last."""
    found: list[tuple[float, float | None]] = []
    away = 0.0 if events[0][1] == "arrives" else None
    for i, (time, event, where) in enumerate(events):
        if i and time == events[i - 1][0]:
            raise SpecError(f"{where}: it has two events at one moment: leave one out")
        if i and (event == "leaves") is (away is not None):
            there = "there" if away is None else "away"
            raise SpecError(f"{where}: it {event}, but it is {there}")
        if event == "leaves":
            away = time
        elif away is not None:
            if time > away:  # otherwise it is there from the beginning
                found.append((away, time - away))
            away = None
    return found if away is None else [*found, (away, None)]

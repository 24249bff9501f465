"""When devices arrive and leave: absences, which the machinery of faults carries out as kills that end.

An absence is no fault: its records say ``away``. Each device draws from streams of its own, so that one
more device, or a longer run, changes no other's times.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from testbed.durations import Durations
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Laws

SHORTEST = 0.001
"""The least seconds for which a device is there, or away: laws may draw 0."""


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

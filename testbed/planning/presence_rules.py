"""The rules of devices that arrive and leave, beside those of faults."""

from collections.abc import Sequence
from pathlib import Path

from testbed.device_names import worker_name
from testbed.errors import SpecError
from testbed.experiment.load import AnySpec
from testbed.experiment.sections.presence import KEYS
from testbed.faults.fault import Fault
from testbed.faults.presence import absences, load_presence
from testbed.faults.rules import FaultRule, FaultTrace, Laws, TracedFault


def presence_rules(spec: AnySpec, class_of: Sequence[int], first: int) -> list[FaultRule]:
    """Return the rules of the devices that arrive and leave.

    Args:
        class_of: the class of every worker, by its number; empty without classes.
        first: the number of the first rule.

    Raises:
        SpecError: a trace cannot be used, or no device is there when training begins.
    """
    section, workers = spec.devices, range(spec.devices.workers)
    rules: list[FaultRule] = []
    if section.presence is not None:
        rows = load_presence(Path(section.presence), {worker_name(i): i for i in workers})
        trace = [
            TracedFault(time, None, device, _absence(first, lasting, at_beginning=time == 0))
            for time, device, lasting in rows
        ]
        struck = sorted({device for _, device, _ in rows})
        late = {device for time, device, _ in rows if time == 0}
        _check(len(late), len(workers))
        return [_rule(first, struck, FaultTrace(trace))]
    for at, one in enumerate(section.classes or (None,)):
        laws = {
            key: getattr(section, key) if one is None else one.of(key, getattr(section, key))
            for key in KEYS
        }
        if any(law is not None for law in laws.values()):
            own = [i for i in workers if one is None or class_of[i] == at]
            drawn = Laws(**{key: law and law.model_dump() for key, law in laws.items()})
            rules.append(_rule(first + len(rules), own, drawn))
    _check(sum(_late(rule, spec) for rule in rules), len(workers))
    return rules


def _rule(number: int, devices: Sequence[int], when: Laws | FaultTrace) -> FaultRule:
    return FaultRule("presence", _absence(number, None), list(devices), when)


def _absence(rule: int, lasting: float | None, *, at_beginning: bool = False) -> Fault:
    return Fault(rule, "kill", lasting, away="not-arrived" if at_beginning else "left")


def _late(rule: FaultRule, spec: AnySpec) -> int:
    """Return the number of a rule's devices that are not there when training begins."""
    firsts = [next(own, None) for own in absences(rule, spec.seed, spec.devices.workers)]
    return sum(first is not None and first[0] == 0 for first in firsts)


def _check(late: int, workers: int) -> None:
    if late >= workers:
        raise SpecError(
            "devices: none of the workers is there when training begins: let some be there from the "
            "beginning, for example those of a class without `arrives`"
        )

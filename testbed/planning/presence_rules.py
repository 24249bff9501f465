"""The rules of devices that arrive and leave, beside those of faults.

A rule is a JSON object as in ``testbed.planning.fault_rules``, whose ``fault`` is a kill with ``away``.
In place of a time it has ``presence``, the sections of ``arrives``, ``leaves`` and ``returns`` (null
where there is none), or a ``trace``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.device_names import worker_name
from testbed.errors import SpecError
from testbed.experiment.deployment import Deployment
from testbed.faults.fault import Fault
from testbed.faults.presence import absences
from testbed.faults.presence_traces import load_presence

KEYS = ("arrives", "leaves", "returns")


def presence_rules(spec: Deployment, class_of: Sequence[int], first: int) -> list[dict[str, Any]]:
    """Return the rules of the devices that arrive and leave.

    Args:
        class_of: the class of every worker, by its number; empty without classes.
        first: the number of the first rule.

    Raises:
        SpecError: a trace cannot be used, or no device is there when training begins.
    """
    section, workers = spec.devices, range(spec.devices.workers)
    rules: list[dict[str, Any]] = []
    if section.presence is not None:
        rows = load_presence(Path(section.presence), {worker_name(i): i for i in workers})
        rule = _rule(first, sorted({device for _, device, _ in rows}))
        rule["trace"] = [
            [time, None, device, _absence(first, lasting, at_beginning=time == 0).to_json()]
            for time, device, lasting in rows
        ]
        late = {device for time, device, _ in rows if time == 0}
        _check(len(late), len(workers))
        return [rule]
    for at, one in enumerate(section.classes or (None,)):
        laws = {
            key: getattr(section, key) if one is None else one.of(key, getattr(section, key))
            for key in KEYS
        }
        if any(law is not None for law in laws.values()):
            own = [i for i in workers if one is None or class_of[i] == at]
            rule = _rule(first + len(rules), own)
            rule["presence"] = {k: law and law.model_dump() for k, law in laws.items()}
            rules.append(rule)
    _check(sum(_late(rule, spec) for rule in rules), len(workers))
    return rules


def _rule(number: int, devices: Sequence[int]) -> dict[str, Any]:
    fault = _absence(number, None)
    return {"stream": "presence", "fault": fault.to_json(), "devices": list(devices)}


def _absence(rule: int, lasting: float | None, *, at_beginning: bool = False) -> Fault:
    return Fault(rule, "kill", lasting, away="not-arrived" if at_beginning else "left")


def _late(rule: dict[str, Any], spec: Deployment) -> int:
    """Return the number of a rule's devices that are not there when training begins."""
    firsts = [next(own, None) for own in absences(rule, spec.seed, spec.devices.workers)]
    return sum(first is not None and first[0] == 0 for first in firsts)


def _check(late: int, workers: int) -> None:
    if late >= workers:
        raise SpecError(
            "devices: none of the workers is there when training begins: let some be there from the "
            "beginning, for example those of a class without `arrives`"
        )

"""The rules of a run's faults: those of the experiment file, with numbers in place of names and files.

A rule is a JSON object: ``stream`` (the name of its random streams), ``fault`` (its ``Fault``),
``devices`` (their numbers) and one of ``probability``, ``time``, ``iteration``, ``mean_time`` and
``trace``, a list of [time or null, iteration or null, device, fault]. The streams of a rule are named
by its place in its own list, so a rule added at a list's end changes no other rule's draws.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.device_names import SERVER_NUMBER, server_number, server_place, worker_name
from testbed.durations.shares import apportion
from testbed.experiment.deployment import Deployment
from testbed.experiment.sections.faults import (
    ByTrace,
    ClassFaultSpec,
    FaultSpec,
    OfClass,
    PlainFault,
    WhoByDevices,
    WhoByName,
    WhoByNumber,
    WhoByShare,
)
from testbed.faults.fault import Fault
from testbed.faults.fault_traces import load_trace
from testbed.streams import stream


def fault_rules(spec: Deployment, class_of: Sequence[int]) -> list[dict[str, Any]]:
    """Return the rules of the file's faults, then those of its classes' faults.

    Args:
        class_of: the class of every worker, by its number; empty without classes.

    Raises:
        SpecError: a trace cannot be used.
    """
    numbers = {worker_name(i): i for i in range(spec.devices.workers)}
    members = {
        one.name: [i for i in numbers.values() if class_of[i] == at]
        for at, one in enumerate(spec.devices.classes)
    }
    faults: list[tuple[ClassFaultSpec, str, list[int]]] = []
    for i, fault in enumerate(spec.faults):
        chosen = _devices(fault, f"faults {i}", spec.seed, numbers, members)
        faults.append((fault, f"faults {i}", chosen))
    for one in spec.devices.classes:
        for i, own in enumerate(one.faults):
            faults.append((own, f"faults {one.name} {i}", members[one.name]))
    return [_rule(i, *fault, numbers) for i, fault in enumerate(faults)]


def _rule(
    index: int, spec: ClassFaultSpec, named: str, devices: list[int], numbers: dict[str, int]
) -> dict[str, Any]:
    lasting = spec.lasting
    if isinstance(spec, FaultSpec) and spec.of_server:
        lasting = lasting or 0.0
    options = {"kind": spec.how.kind} if isinstance(spec.how, PlainFault) else spec.how.model_dump()
    fault = Fault(index, duration=lasting, **options)
    rule = {"stream": named, "fault": fault.to_json(), "devices": devices}
    if not isinstance(spec.when, ByTrace):
        return rule | spec.when.model_dump()
    rows = []
    known = {name: number for name, number in numbers.items() if number in devices}
    for row in load_trace(Path(spec.when.trace), known):
        duration = lasting if row.lasting is None else row.lasting
        as_row = Fault(index, row.kind, duration) if row.kind else replace(fault, duration=duration)
        rows.append([row.time, row.iteration, row.device, as_row.to_json()])
    return rule | {"trace": rows}


def _devices(
    fault: FaultSpec, named: str, seed: int, numbers: dict[str, int], members: dict[str, list[int]]
) -> list[int]:
    """Return the numbers of the devices that a fault strikes."""
    workers = len(numbers)
    match fault.who:
        case WhoByName(name="server"):
            return [SERVER_NUMBER]
        case WhoByName():
            return list(range(workers))
        case OfClass(class_=name):
            return members[name]
        case WhoByDevices(devices=names) if fault.of_server:
            return [server_number(index) for index in sorted(set(map(server_place, names)))]
        case WhoByDevices(devices=names):
            return sorted({numbers[name] for name in names})
        case WhoByNumber(number=count):
            pass
        case WhoByShare(share=share):
            count = apportion([share, 1 - share], workers)[0]
    return sorted(stream(seed, f"{named} who").permutation(workers)[:count].tolist())

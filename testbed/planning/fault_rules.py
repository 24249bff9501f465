"""The rules of a run's faults: those of its file, with numbers in place of names and files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from testbed.device_names import (
    SERVER_NUMBER,
    aggregator_name,
    server_number,
    server_place,
    worker_name,
)
from testbed.durations.shares import apportion
from testbed.errors import SpecError
from testbed.experiment.load import AnySpec
from testbed.experiment.sections.faults import (
    AfterPushes,
    AtIteration,
    AtTime,
    ByTrace,
    ClassFaultSpec,
    FaultSpec,
    OfClass,
    PlainFault,
    Repeatedly,
    WhoByDevices,
    WhoByName,
    WhoByNumber,
    WhoByShare,
)
from testbed.faults.fault import Fault
from testbed.faults.fault_traces import load_trace
from testbed.faults.rules import (
    EachPush,
    FaultRule,
    FaultTrace,
    Intervals,
    Moment,
    TracedFault,
    Version,
    When,
)
from testbed.random_streams import stream


def fault_rules(spec: AnySpec, class_of: Sequence[int], aggregators: int = 0) -> list[FaultRule]:
    """Return the rules of the file's faults, then those of its classes' faults.

    Args:
        class_of: the class of every worker, by its number; empty without classes.
        aggregators: their number; their own numbers come after those of the workers.

    Raises:
        SpecError: a trace cannot be used, or a fault names an aggregator that there is not.
    """
    numbers = {worker_name(i): i for i in range(spec.devices.workers)}
    members = {
        one.name: [i for i in numbers.values() if class_of[i] == at]
        for at, one in enumerate(spec.devices.classes)
    }
    faults: list[tuple[ClassFaultSpec, str, list[int]]] = []
    for i, fault in enumerate(spec.faults):
        if isinstance(fault.who, WhoByDevices) and fault.of_aggregator:
            chosen = _aggregators(fault.who, f"faults.{i}.who.devices", len(numbers), aggregators)
        else:
            chosen = _devices(fault, f"faults {i}", spec.seed, numbers, members)
        faults.append((fault, f"faults {i}", chosen))
    for one in spec.devices.classes:
        for i, own in enumerate(one.faults):
            faults.append((own, f"faults {one.name} {i}", members[one.name]))
    return [_rule(i, *fault, numbers) for i, fault in enumerate(faults)]


def _rule(
    index: int, spec: ClassFaultSpec, named: str, devices: list[int], numbers: dict[str, int]
) -> FaultRule:
    lasting = spec.lasting
    if isinstance(spec, FaultSpec) and spec.of_server:
        lasting = lasting or 0.0
    options = {"kind": spec.how.kind} if isinstance(spec.how, PlainFault) else spec.how.model_dump()
    fault = Fault(index, duration=lasting, **options)
    when: When
    match spec.when:
        case AfterPushes(probability=probability):
            when = EachPush(probability)
        case AtTime(time=time):
            when = Moment(time)
        case AtIteration(iteration=iteration):
            when = Version(iteration)
        case Repeatedly(mean_time=mean_time):
            when = Intervals(mean_time)
        case ByTrace(trace=path):
            known = {name: number for name, number in numbers.items() if number in devices}
            when = _trace(path, fault, known)
    return FaultRule(named, fault, devices, when)


def _trace(path: str, fault: Fault, numbers: dict[str, int]) -> FaultTrace:
    """Read a trace, whose rows are of ``fault`` where they do not say another kind or duration."""
    rows = []
    for row in load_trace(Path(path), numbers):
        duration = fault.duration if row.lasting is None else row.lasting
        own = (
            Fault(fault.rule, row.kind, duration) if row.kind else replace(fault, duration=duration)
        )
        rows.append(TracedFault(row.time, row.iteration, row.device, own))
    return FaultTrace(rows)


def _aggregators(who: WhoByDevices, where: str, workers: int, aggregators: int) -> list[int]:
    """Return the numbers of the aggregators that are named."""
    numbers = {aggregator_name(index): workers + index for index in range(aggregators)}
    for i, name in enumerate(who.devices):
        if name not in numbers:
            known = f"{aggregator_name(0)} to {aggregator_name(aggregators - 1)}"
            text = known if aggregators > 1 else f"{aggregator_name(0)} only"
            raise SpecError(f"{where}.{i}: there is no '{name}': the run has {text}")
    return sorted({numbers[name] for name in who.devices})


def _devices(
    fault: FaultSpec, named: str, seed: int, numbers: dict[str, int], members: dict[str, list[int]]
) -> list[int]:
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

"""Resolution of the experiment file's faults into rules that need nothing else: numbers, no files.

A resolved rule is a JSON object: ``stream`` (the name of its random streams), ``fault`` (its
``Fault``), ``devices`` (their numbers) and one of ``probability``, ``time``, ``iteration``,
``mean_time`` and ``trace``, a list of [time or null, iteration or null, device, fault]. The streams of
a rule are named by its place in its own list, so a rule added at a list's end changes no other rule's
draws.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.device_names import SERVER_NUMBER
from testbed.durations.shares import apportion
from testbed.faults.fault import Fault
from testbed.faults.traces import load_trace
from testbed.streams import stream

RATES = ("probability", "time", "iteration", "mean_time")


def resolve(
    rules: Sequence[Mapping[str, Any]],
    of_classes: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    seed: int,
    names: Mapping[str, int],
    classes: Mapping[str, Sequence[int]],
) -> list[dict[str, Any]]:
    """Resolve the rules of the file's list, then those of its classes.

    Args:
        rules: the list's rules, as ``FaultSpec.plain`` gives them.
        of_classes: the rules of each class, as ``ClassFaultSpec.plain`` gives them.
        names: the workers' numbers by their names.
        classes: the workers of each class.

    Raises:
        SpecError: a trace cannot be used.
    """
    devices = [_devices(rule["who"], seed, i, names, classes) for i, rule in enumerate(rules)]
    given = list(zip(rules, devices, (f"faults {i}" for i in range(len(rules))), strict=True))
    for name, own in of_classes.items():
        given += [(rule, list(classes[name]), f"faults {name} {i}") for i, rule in enumerate(own)]
    return [_resolved(i, *one, names) for i, one in enumerate(given)]


def _resolved(
    index: int,
    rule: Mapping[str, Any],
    devices: list[int],
    named: str,
    names: Mapping[str, int],
) -> dict[str, Any]:
    when, lasting = rule["when"], rule["lasting"]
    fault = Fault(index, duration=lasting, **rule["how"])
    resolved = {"stream": named, "fault": fault.to_json(), "devices": devices}
    if "trace" not in when:
        return resolved | {key: when[key] for key in RATES if key in when}
    rows = []
    for row in load_trace(Path(when["trace"]), {n: d for n, d in names.items() if d in devices}):
        duration = lasting if row.lasting is None else row.lasting
        own = Fault(index, row.kind, duration) if row.kind else None
        as_row = own or Fault(index, duration=duration, **rule["how"])
        rows.append([row.time, row.iteration, row.device, as_row.to_json()])
    return resolved | {"trace": rows}


def _devices(
    who: Mapping[str, Any],
    seed: int,
    index: int,
    names: Mapping[str, int],
    classes: Mapping[str, Sequence[int]],
) -> list[int]:
    count = len(names)
    if who.get("name") == "server":
        return [SERVER_NUMBER]
    if "class" in who:
        return sorted(classes[who["class"]])
    if "devices" in who:
        return sorted({names[name] for name in who["devices"]})
    if "name" in who:
        return list(range(count))
    number = who.get("number") or apportion([who["share"], 1 - who["share"]], count)[0]
    chosen = stream(seed, f"faults {index} who").permutation(count)[:number]
    return sorted(chosen.tolist())

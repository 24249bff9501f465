"""Conflicts of an experiment file of programs: unknown names, and keys that mean nothing there."""

import re
import shlex
from collections.abc import Iterator, Mapping

from testbed.device_names import worker_name
from testbed.experiment import fault_conflicts
from testbed.experiment.network_conflicts import of_links, of_rate_traces, of_shared_links
from testbed.experiment.problems import did_you_mean
from testbed.experiment.program_contents import ProgramContents
from testbed.experiment.sections.faults import (
    AfterPushes,
    AtIteration,
    ClassFaultSpec,
    OfClass,
    SlowFault,
)
from testbed.experiment.sections.programs import SERVER, WORKERS, OnSpec, ProgramSpec
from testbed.experiment.sections.section import Conflict
from testbed.experiment.traffic_conflicts import of_traffic_between

PLACEHOLDERS = ("name", "index", "count", "server", "address", "run", "seed")
"""The names that braces can hold in commands and environment variables."""
PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)\}")
"""A placeholder; ``${name}`` is a shell's, and braces around anything else are left as they are."""
REAL = (
    "programs run in real devices and in real time: take it out (`engine: emulation` and `clock: wall` "
    "are the defaults)"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OF_ALGORITHMS = (
    "servers",
    "allocation",
    "placement",
    "launch",
    "hardware",
    "power",
    "suspect_after",
)
"""The keys of ``devices`` that mean nothing for programs."""


def conflicts(spec: ProgramContents) -> list[Conflict]:
    """Return every conflict of the file."""
    return [
        *_engine(spec),
        *_programs(spec),
        *_order(spec.programs),
        *_measure(spec),
        *_devices(spec),
        *_faults(spec),
        *spec.devices.conflicts(loads_torch=False),
        *of_links(spec),
        *of_shared_links(spec),
        *of_rate_traces(spec),
        *of_traffic_between(spec, known_devices(spec)),
    ]


def _engine(spec: ProgramContents) -> Iterator[Conflict]:
    if spec.engine != "emulation":
        yield ("engine",), REAL
    if spec.clock != "wall":
        yield ("clock",), REAL


def known_devices(spec: ProgramContents) -> tuple[str, ...]:
    """Return the names of the run's devices: the server, the workers, and further nodes."""
    workers = map(worker_name, range(spec.devices.workers))
    return (SERVER, *workers, *(one.name for one in spec.nodes))


def _programs(spec: ProgramContents) -> Iterator[Conflict]:
    devices = known_devices(spec)
    names = [one.name for one in spec.nodes]
    taken = [name for name in names if names.count(name) > 1]
    taken += [one.name for one in spec.network.clusters if one.name in names]
    if taken:
        yield ("nodes",), f"'{taken[0]}' is the name of two nodes: give one another name"
    yield from _environment(("environment",), spec.environment)
    for name, program in spec.programs.items():
        at = ("programs", name)
        if not _NAME.fullmatch(name):
            yield at, "a program's name has up to 64 letters, digits, '-' and '_'"
        yield from (((*at, "on", *path), text) for path, text in _place(spec, program.on, devices))
        yield from (((*at, key), text) for key, text in _kind(spec, program))
        if program.run is not None and (text := _command_problem(program.run)):
            yield (*at, "run"), text
        yield from _environment((*at, "environment"), program.environment)
        sign = program.ready
        if sign is not None and sign.command and (text := _command_problem(sign.command)):
            yield (*at, "ready", "command"), text
        for i, other in enumerate(program.after):
            if other not in spec.programs:
                hint = did_you_mean(other, spec.programs)
                yield (*at, "after", i), f"there is no program '{other}'{hint}"


def _environment(at: tuple[str, ...], variables: Mapping[str, str]) -> Iterator[Conflict]:
    for key, value in variables.items():
        if key == "HOME" or key.startswith("TESTBED_") or not key or "=" in key:
            text = "it is the testbed's own, or no name of a variable: use another name"
            yield (*at, key), text
        if problem := _placeholder_problem(value):
            yield (*at, key), problem


def _kind(spec: ProgramContents, program: ProgramSpec) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a program's image, or with having none."""
    containers = spec.devices.runtime == "docker"
    if program.image is not None and not containers:
        yield "image", "only containers have it: take it out, or use `runtime: docker`"
    elif program.run is None and program.image is None:
        or_image = ", or an `image` that starts by itself" if containers else ""
        yield "run", f"is missing: give it a command{or_image}"
    if program.python is not None and containers:
        yield "python", "a container has the Python of its image: take it out"


def _place(spec: ProgramContents, on: OnSpec, devices: tuple[str, ...]) -> Iterator[Conflict]:
    if isinstance(on, OfClass):
        classes = [one.name for one in spec.devices.classes]
        if on.class_ not in classes:
            known = f"the classes are {', '.join(classes)}" if classes else "there are no classes"
            yield ("class",), f"there is no class '{on.class_}': {known}"
        return
    for name in on.devices:
        if name != WORKERS and name not in devices:
            others = [one.name for one in spec.nodes]
            more = f", and {', '.join(others)}" if others else ""
            last = worker_name(spec.devices.workers - 1)
            text = (
                f"there is no device '{name}': there are {SERVER}, {WORKERS}, worker-0 to {last}"
                f"{more}; more are listed under `nodes`"
            )
            yield (), text
    if len(set(on.devices)) < len(on.devices):
        yield (), "a device is named twice: name each once"


def _command_problem(command: str) -> str | None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"it is not quoted as for a shell: {error}"
    if not words:
        return "it is empty: give it a command"
    return _placeholder_problem(command)


def _placeholder_problem(text: str) -> str | None:
    for name in PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            own = f": write '{{ {name} }}' if the braces are the program's own"
            return f"'{{{name}}}' is none of {known}{did_you_mean(name, PLACEHOLDERS) or own}"
    return None


def _order(programs: Mapping[str, ProgramSpec]) -> Iterator[Conflict]:
    """Yield a conflict if programs wait for each other."""
    before = {name: [one for one in of.after if one in programs] for name, of in programs.items()}
    left = dict(before)
    while free := [name for name, others in left.items() if not any(one in left for one in others)]:
        for name in free:
            del left[name]
    if left:
        name = next(iter(left))
        way = [name]
        while (following := next(one for one in before[way[-1]] if one in left)) not in way:
            way.append(following)
        circle = [*way[way.index(following) :], following]
        yield (
            ("programs", circle[0], "after"),
            (f"they wait for each other ({' after '.join(circle)}): take one `after` out"),
        )


def _measure(spec: ProgramContents) -> Iterator[Conflict]:
    if spec.measure is not None and spec.measure.from_ not in spec.programs:
        hint = did_you_mean(spec.measure.from_, spec.programs)
        yield ("measure", "from"), f"there is no program '{spec.measure.from_}'{hint}"


def _devices(spec: ProgramContents) -> Iterator[Conflict]:
    given = spec.devices.model_fields_set
    for key in _OF_ALGORITHMS:
        if key in given and getattr(spec.devices, key) is not None:
            yield ("devices", key), "programs have no use for it: take it out"
    for i, one in enumerate(spec.devices.classes):
        for key in ("compute", "waiting", "hardware", "power", "weight"):
            if getattr(one, key, None) is not None:
                yield ("devices", "classes", i, key), "programs have no use for it: take it out"


def _faults(spec: ProgramContents) -> Iterator[Conflict]:
    yield from fault_conflicts.of_faults(spec)
    for i, fault in enumerate(spec.faults):
        yield from ((("faults", i, *path), text) for path, text in _fault(fault))
    for i, one in enumerate(spec.devices.classes):
        for j, own in enumerate(one.faults):
            at = ("devices", "classes", i, "faults", j)
            yield from (((*at, *path), text) for path, text in _fault(own))


def _fault(fault: ClassFaultSpec) -> Iterator[Conflict]:
    if isinstance(fault.when, AfterPushes | AtIteration):
        yield (
            ("when",),
            ("the testbed does not know what programs push: give one of time, mean_time and trace"),
        )
    if isinstance(fault.how, SlowFault) and fault.how.factor is not None:
        yield (
            ("how", "factor"),
            ("durations of programs cannot be multiplied: slow the link (uplink, downlink)"),
        )

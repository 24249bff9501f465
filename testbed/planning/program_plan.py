"""Make the plan of a run of programs: devices, addresses, links, and what each device runs."""

import os
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from testbed.containers.image import default_image
from testbed.containers.program_containers import HOME_INSIDE
from testbed.device_names import SERVER_NAME, SERVER_NUMBER, worker_name
from testbed.errors import SpecError
from testbed.experiment.program_conflicts import PLACEHOLDER, known_devices
from testbed.experiment.programs_spec import ProgramsSpec
from testbed.experiment.sections.faults import OfClass
from testbed.experiment.sections.programs import WORKERS, ProgramSpec
from testbed.experiment.traffic_flows import flows_of
from testbed.faults.rules import FaultRule
from testbed.faults.schedule import Schedule
from testbed.network.background import BackgroundFlow
from testbed.network.links import MOST_LINKS, Link
from testbed.network.sysctls import OF_PROGRAMS
from testbed.network.topology import Network
from testbed.planning import background_flows, capacity
from testbed.planning.fault_rules import fault_rules
from testbed.planning.network_plan import machines_of
from testbed.planning.presence_rules import presence_rules
from testbed.programs.instance import Instance, Rules
from testbed.rate_trace import RateTrace

MEMORY_PER_DEVICE = 12 * 2**20
"""Bytes of memory that a device needs before any program runs in it: its keeper and its namespaces."""
MEMORY_PER_CONTAINER = 20 * 2**20
"""Bytes that a container needs besides: the engine's process for it, and the keeper's."""
_LANGUAGE = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class ProgramPlan:
    """One run of programs, ready to be carried out.

    Attributes:
        label: the run directory's name.
        network: the devices' and the routers' links.
        class_of: the class of each worker, by its number; empty without classes.
        rules: those of faults, and of devices that arrive and leave.
        observed, counted, served, local, aggregators: as of ``Plan``, always the same.
    """

    observed: ClassVar[str] = SERVER_NAME
    counted: ClassVar[Sequence[str]] = (SERVER_NAME,)
    served: ClassVar[bool] = True
    local: ClassVar[Mapping[str, str]] = {}
    aggregators: ClassVar[Sequence[str]] = ()
    spec: ProgramsSpec
    label: str
    network: Network
    class_of: Sequence[int]
    rules: Sequence[FaultRule]

    @property
    def links(self) -> tuple[Link, ...]:
        """All links of the network."""
        return self.network.links

    @property
    def asked_network(self) -> Network:
        """The network with its links as in the experiment file: in real time they are so."""
        return self.network

    @property
    def machines(self) -> tuple[str, ...]:
        """None: no machine has several namespaces."""
        return ()

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of all devices."""
        return known_devices(self.spec)

    @cached_property
    def workers(self) -> dict[str, int]:
        """The workers' numbers by device name."""
        return {worker_name(i): i for i in range(self.spec.devices.workers)}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each device that a fault may strike, by its name."""
        return {SERVER_NAME: SERVER_NUMBER, **self.workers}

    @property
    def schedule(self) -> Schedule:
        """The schedule of the run's faults."""
        return Schedule(self.rules, self.spec.seed, self.spec.devices.workers)

    @property
    def followed_traces(self) -> dict[int, tuple[RateTrace | None, RateTrace | None]]:
        """The traces that the workers' uplinks and downlinks follow, by number; none if none does."""
        count, classes = self.spec.devices.workers, self.spec.devices.classes
        links = [self.spec.link_of(one) for one in classes or (None,)]
        if not any(one.up_trace or one.down_trace for one in links):
            return {}
        found: dict[int, tuple[RateTrace | None, RateTrace | None]] = {}
        for number in range(count):
            own = links[self.class_of[number] if self.class_of else 0]
            up, down = (
                trace and trace.of_device(number, count) for trace in (own.up_trace, own.down_trace)
            )
            found[number] = up, down
        return found

    @property
    def sysctls(self) -> dict[str, str]:
        """The settings of the devices' network that are not the kernel's own."""
        return {**OF_PROGRAMS, **self.spec.network.tcp_settings({})}

    @property
    def containers(self) -> int:
        """The number of containers: one for each device, and for each program there."""
        if self.spec.devices.runtime != "docker":
            return 0
        return len(self.devices) + sum(len(self.places(name)) for name in self.spec.programs)

    @property
    def memory(self) -> int:
        """Bytes of memory that the run needs without what the programs need."""
        return MEMORY_PER_DEVICE * len(self.devices) + MEMORY_PER_CONTAINER * self.containers

    @property
    def memory_per_device(self) -> int:
        """Bytes of memory that one device more needs."""
        return self.memory // len(self.devices)

    @property
    def shared_memory(self) -> int:
        """Bytes of memory that all devices share: nothing but what programs have in common."""
        return 0

    @property
    def open_files(self) -> int:
        """The most descriptors that any of the run's processes will hold."""
        of_flows = background_flows.FILES_PER_FLOW * len(self.background)
        return capacity.FILES_PER_RUN + capacity.FILES_PER_DEVICE * len(self.links) + of_flows

    @property
    def background(self) -> tuple[BackgroundFlow, ...]:
        """The flows of background traffic."""
        return flows_of(self.spec.traffic_between)

    def address(self, device: str) -> str:
        """Return the address of a device."""
        return self.network.link(device).address

    @property
    def image(self) -> str:
        """The image of the devices' containers, and of programs without one of their own."""
        return self.spec.devices.image or default_image()

    @property
    def images(self) -> dict[str, str]:
        """The image of each program's containers."""
        return {name: one.image or self.image for name, one in self.spec.programs.items()}

    @property
    def life_rules(self) -> dict[str, Rules]:
        """What the file says of each program's life."""
        return {
            name: Rules(one.after, one.restart, one.ends == "run")
            for name, one in self.spec.programs.items()
        }

    def places(self, program: str) -> tuple[str, ...]:
        """Return the devices of a program, in the order of its instances' numbers."""
        on = self.spec.programs[program].on
        workers = [worker_name(i) for i in range(self.spec.devices.workers)]
        if isinstance(on, OfClass):
            classes = [one.name for one in self.spec.devices.classes]
            own = classes.index(on.class_)
            return tuple(
                name for name, one in zip(workers, self.class_of, strict=True) if one == own
            )
        found: list[str] = []
        for name in on.devices:
            found += workers if name == WORKERS else [name]
        return tuple(dict.fromkeys(found))

    def instances(self, home: Path, run: str) -> tuple[Instance, ...]:
        """Return every program on every device.

        Args:
            home: the home of programs, at the same path in all devices but containers.
            run: the run's id, for programs to see.
        """
        return tuple(
            self._instance(program, device, index, home, run)
            for program in self.spec.programs
            for index, device in enumerate(self.places(program))
        )

    def _instance(self, program: str, device: str, index: int, home: Path, run: str) -> Instance:
        spec, section = self.spec, self.spec.programs[program]
        values = {
            "name": device,
            "index": str(index),
            "count": str(len(self.places(program))),
            "server": self.address(SERVER_NAME),
            "address": self.address(device),
            "run": run,
            "seed": str(spec.seed),
        }
        own = {f"TESTBED_{name.upper()}": value for name, value in values.items()}
        given = {**spec.environment, **section.environment}
        contained = spec.devices.runtime == "docker"
        environment = {
            **({} if contained else _of_host(spec, section)),
            # What a program says, and what is measured of it, must not wait in a buffer.
            "PYTHONUNBUFFERED": "1",
            **{key: filled(value, values) for key, value in given.items()},
            "HOME": HOME_INSIDE if contained else str(home),
            "TESTBED_PROGRAM": program,
            **own,
        }
        command = [filled(word, values) for word in shlex.split(section.run or "")]
        return Instance(program, device, index, command, environment)


def _of_host(spec: ProgramsSpec, section: ProgramSpec) -> dict[str, str]:
    """Return the environment that a program has from this host; a container's is its image's."""
    found = {**_LANGUAGE, "PATH": search_path(spec, section), "USER": "root", "TMPDIR": "/tmp"}
    return found if section.python is None else found | {"VIRTUAL_ENV": section.python}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in a text."""
    return PLACEHOLDER.sub(lambda found: values[found.group(1)], text)


def search_path(spec: ProgramsSpec, section: ProgramSpec) -> str:
    """Return the PATH of a program: the file's, or this host's after its virtual environment."""
    general, python = os.environ.get("PATH", os.defpath), section.python
    found = general if python is None else f"{Path(python) / 'bin'}{os.pathsep}{general}"
    return {"PATH": found, **spec.environment, **section.environment}["PATH"]


def shown_paths(spec: ProgramsSpec) -> Iterator[str]:
    """Yield the paths of the host's files that devices must see, even where homes are hidden."""
    yield from spec.reads
    for section in spec.programs.values():
        path = search_path(spec, section)
        programs = [shlex.split(section.run)[0]] if section.run else []
        if section.ready is not None and section.ready.command is not None:
            programs.append(shlex.split(section.ready.command)[0])
        for program in (*programs, *(["python"] if section.python else [])):
            found = shutil.which(program, path=path)
            if found is not None:
                yield from _installation(Path(found))
        if section.python is not None:
            yield section.python


def _installation(program: Path) -> Iterator[str]:
    """Yield the folders of an installation to which a program belongs, and its interpreter's."""
    for one in (program, program.resolve()):
        folder = one.parent
        is_home = folder.parent in (Path.home(), Path("/root"))
        within = folder.name in ("bin", "sbin") and not is_home
        yield str(folder.parent if within else folder)
    interpreter = program.parent / "python"
    if interpreter.exists():
        yield str(interpreter.resolve().parents[1])


def plan_programs(spec: ProgramsSpec) -> list[ProgramPlan]:
    """Plan the run of programs.

    Raises:
        SpecError: there are more devices than links in the address plan, a class without devices has a
            program, or a trace cannot be used.
    """
    class_of = spec.devices.class_of(spec.seed)
    network = machines_of(spec, served=True, class_of=class_of, evaluated=False, nodes=spec.nodes)
    if len(network.links) > MOST_LINKS:
        raise SpecError(
            f"network: the run has {len(network.links):,} links, and the address plan {MOST_LINKS:,}: "
            "use fewer workers or a smaller graph"
        )
    rules = fault_rules(spec, class_of)
    rules += presence_rules(spec, class_of, len(rules))
    found = ProgramPlan(spec, spec.run_label, network, class_of, rules)
    for name in spec.programs:
        if not found.places(name):
            raise SpecError(
                f"programs.{name}.on: this class has no device of the {spec.devices.workers} workers: "
                "give it a larger share"
            )
    return [found]


def _program_of(spec: ProgramsSpec, command: str) -> str | None:
    """Return what a command begins with; None if that is in its home, or not known yet."""
    program = shlex.split(command)[0]
    copied = [Path(file).name for file in spec.files]
    in_home = "/" in program and not program.startswith("/")
    is_copied = in_home and Path(program).parts[0] in (".", *copied)
    return None if is_copied or PLACEHOLDER.search(program) else program


def files_read(plan: ProgramPlan, devices: Collection[str]) -> dict[str, str]:
    """Return the paths that programs on some devices need, with the key that asks for each."""
    spec = plan.spec
    found = dict.fromkeys(spec.files, "files") | dict.fromkeys(spec.reads, "reads")
    for name, section in spec.programs.items():
        if not {*plan.places(name)} & {*devices}:
            continue
        if section.python is not None:
            found[section.python] = f"programs.{name}.python"
        if (program := _program_of(spec, section.run or "")) is not None:
            path = shutil.which(program, path=search_path(spec, section))
            if path is not None:
                found[path] = f"programs.{name}.run"
    return found


def missing_programs(spec: ProgramsSpec) -> Iterator[str]:
    """Yield a sentence on each program that this host does not have.

    Those of containers are in their images.
    """
    if spec.devices.runtime == "docker":
        return
    for name, section in spec.programs.items():
        path, ready = search_path(spec, section), section.ready
        tried = ready.command if ready else None
        for key, command in (("run", section.run), ("ready.command", tried)):
            program = _program_of(spec, command) if command else None
            if program is not None and shutil.which(program, path=path) is None:
                where = f"in {section.python}, nor in PATH" if section.python else "in PATH"
                yield (
                    f"programs.{name}.{key}: there is no program '{program}' {where}: install it, or "
                    "name the virtual environment that has it by `python`"
                )

"""Nodes that are containers, with their roles forked into them or started by their own Python."""

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pkgutil import resolve_name

from testbed.channel import Channel
from testbed.containers import engine, limits
from testbed.containers.fleet import REAPING, Fleet
from testbed.containers.program_containers import Beside
from testbed.containers.role_connections import RoleConnections
from testbed.messages.agent_reports import NodeEvent, ProcessExited, ProcessStarted
from testbed.messages.planned_nodes import PlannedNodes
from testbed.messages.requests import Load
from testbed.nodes import etc_files, run_names
from testbed.nodes.fork_server_client import ForkServerClient
from testbed.nodes.node_interface import Device, Nodes


def container_nodes(chosen: PlannedNodes, load: Load, not_theirs: Channel) -> Nodes:
    """Make the nodes of a run, which have no containers yet.

    Raises:
        HostError: there is no usable engine.
    """
    files = etc_files.shared(chosen["addresses"])
    if chosen["launch"] in ("fork", "beside"):
        # Forked first: it must not inherit anything that is made below.
        fork_server = ForkServerClient(load, not_theirs, apart=False)
        client, run = engine.connect(), run_names.new()
        if chosen["launch"] == "fork":
            return ForkedNodes(Fleet(client, run, chosen["image"], files), fork_server)
        fleet = Fleet(client, run, chosen["image"], files, first=REAPING)
        return ProgramNodes(fleet, fork_server, chosen["images"], chosen["read"])
    fleet = Fleet(
        engine.connect(),
        run_names.new(),
        chosen["image"],
        files,
        started=["python", "-m", "testbed.containers.role_in_container"],
        mounts=chosen["mounts"],
        environment=chosen["environment"],
    )
    shared = resolve_name(load["shared"])(load["arguments"])
    inside: Load = {"entry": load["entry_inside"], "arguments": load["arguments"]}
    return StartedNodes(fleet, RoleConnections(fleet.folder, inside, shared.descriptors))


class _ContainerNodes(ABC):
    """The part that forked and started roles have in common."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._planned: dict[str, float | None] = {}
        self._killed: set[str] = set()

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        self._planned = {device.name: device.cpus for device in devices}
        self._fleet.create(devices, abandoned)

    def network(self, device: str) -> int:
        return self._fleet[device].network

    def containers(self) -> Mapping[str, int]:
        return {device: self._fleet[device].first for device in self._planned}

    def freeze(self, device: str) -> None:
        self._fleet.freeze(device)

    def thaw(self, device: str) -> None:
        self._fleet.thaw(device)

    def kill(self, device: str) -> None:
        """Kill the process of a device's role; the container waits for the next one."""
        self._killed.add(device)
        self._kill_role(device)
        self._fleet.thaw(device)  # a paused process dies only once it is thawed

    @abstractmethod
    def _kill_role(self, device: str) -> None:
        """Send the process of a device's role SIGKILL, if there is one."""

    def _explained(self, event: NodeEvent) -> NodeEvent:
        """Return an event, with the memory limit if its process was killed for exceeding that."""
        if not isinstance(event, ProcessExited):
            return event
        asked = event.device in self._killed
        self._killed.discard(event.device)
        if event.status != -signal.SIGKILL or asked:
            return event
        return replace(event, memory_limit=self._fleet.ran_out_of_memory(event.device))

    def processor_seconds(self, device: str) -> float | None:
        return (
            limits.processor_seconds(self._fleet[device].first) if device in self._fleet else None
        )

    def limit(self, device: str, cpus: float | None) -> None:
        own = self._planned[device] if cpus is None else cpus
        limits.limit_processors(self._fleet[device].first, own)


class ForkedNodes(_ContainerNodes):
    """Nodes with forked roles (``launch: fork``); see ``testbed.nodes.node_interface.Nodes``."""

    def __init__(self, fleet: Fleet, fork_server: ForkServerClient) -> None:
        super().__init__(fleet)
        self._fork_server = fork_server
        self._processes: dict[str, int] = {}
        """Descriptors of the roles' processes, by device."""

    @property
    def fork_server(self) -> int | None:
        return self._fork_server.process

    def fileno(self) -> int:
        return self._fork_server.channel.fileno()

    def events(self) -> Iterator[NodeEvent]:
        for event in self._fork_server.events():
            self._note(event)
            yield self._explained(event)

    def _note(self, event: NodeEvent) -> None:
        """Keep a descriptor of each role's process as long as that lives."""
        if isinstance(event, ProcessStarted):
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                self._processes[event.device] = os.pidfd_open(event.process)
        elif isinstance(event, ProcessExited) and event.device in self._processes:
            os.close(self._processes.pop(event.device))

    def has_room(self) -> bool:
        return self._fork_server.channel.has_room()

    def start(self, device: str, role: Mapping[str, object], report: int) -> None:
        first = self._fleet[device].first
        self._fork_server.start(device, role, [report], container=first)

    def _kill_role(self, device: str) -> None:
        self._fork_server.signal(device, signal.SIGKILL)
        # When the fork server does so is its own affair, and a paused process must not go on before.
        if device in self._processes:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._processes[device], signal.SIGKILL)

    def take_down(self) -> str | None:
        self._fork_server.end()
        return self._fleet.take_down()


class ProgramNodes(ForkedNodes):
    """Nodes whose role is a keeper, beside which each program is a container of its own."""

    def __init__(
        self,
        fleet: Fleet,
        fork_server: ForkServerClient,
        images: Mapping[str, str],
        read: Sequence[str],
    ) -> None:
        """Make nodes without containers.

        Args:
            images: of the programs, by their names.
            read: paths of the host's files that programs read.
        """
        super().__init__(fleet, fork_server)
        self._images, self._read = images, {path: path for path in read}
        self._memory: dict[str, int | None] = {}
        self._cpus: dict[str, float | None] = {}
        """The processors that programs may use now, by device."""

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        # Limits are for programs: a device's own container holds the keeper, and waits.
        super().create([Device(one.name) for one in devices], abandoned)
        self._planned = {one.name: one.cpus for one in devices}
        self._cpus = dict(self._planned)
        self._memory = {one.name: one.memory for one in devices}

    def start(self, device: str, role: Mapping[str, object], report: int) -> None:
        own = self._fleet[device]
        beside = Beside(
            own.id,
            self._fleet.name(device),
            self._fleet.labels(device),
            self._images,
            self._fleet.name_files(device) | self._read,
            self._cpus[device],
            self._memory[device],
        )
        self._fork_server.start(
            device, {**role, "beside": asdict(beside)}, [report], container=own.first, beside=True
        )

    def events(self) -> Iterator[NodeEvent]:
        for event in super().events():
            if isinstance(event, ProcessExited):  # its programs do not go on without a keeper
                self._fleet.remove_programs(event.device)
            yield event

    def freeze(self, device: str) -> None:
        super().freeze(device)  # first, so that no program is started any more
        self._fleet.freeze_programs(device)

    def thaw(self, device: str) -> None:
        self._fleet.thaw_programs(device)
        super().thaw(device)

    def kill(self, device: str) -> None:
        super().kill(device)
        self._fleet.remove_programs(device)

    def limit(self, device: str, cpus: float | None) -> None:
        # One that a living keeper starts later has the limit of when that keeper was started.
        self._cpus[device] = self._planned[device] if cpus is None else cpus
        self._fleet.limit_programs(device, self._cpus[device])


class StartedNodes(_ContainerNodes):
    """Nodes with started roles (``launch: image``); see ``testbed.nodes.node_interface.Nodes``."""

    def __init__(self, fleet: Fleet, gate: RoleConnections) -> None:
        super().__init__(fleet)
        self._gate = gate
        self.fork_server: int | None = None

    def fileno(self) -> int:
        return self._gate.fileno()

    def events(self) -> Iterator[NodeEvent]:
        return map(self._explained, self._gate.events())

    def has_room(self) -> bool:
        return True  # every container has a connection of its own

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        self._gate.expect(devices)
        super().create(devices, abandoned)
        for device in devices:
            if device.name in self._fleet:
                self._gate.watch(device.name, self._fleet[device.name].started)

    def start(self, device: str, role: Mapping[str, object], report: int) -> None:
        if self._gate.has_ended(device):
            self._gate.watch(device, self._fleet.start_again(device))
        self._gate.start(device, role, report)

    def _kill_role(self, device: str) -> None:
        self._gate.kill(device)

    def take_down(self) -> str | None:
        self._gate.close()
        return self._fleet.take_down()

"""Nodes that are containers, with their roles forked into them or started by their own Python."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from testbed.channel import Channel
from testbed.containers import engine, processors
from testbed.containers.fleet import Fleet
from testbed.containers.gate import Gate
from testbed.nodes import entry_point, run_names
from testbed.nodes.forking import ForkServer
from testbed.nodes.interface import Device, Nodes


def containers(
    chosen: Mapping[str, Any], load: Mapping[str, Any], report: Channel, not_theirs: Channel
) -> Nodes:
    """The nodes of a run.

    Args:
        chosen: ``launch``, ``image`` (its id), ``mounts`` and ``environment`` of the run's plan.
        load: what the roles are made of: ``entry``, ``entry_inside``, ``shared`` and ``arguments``.

    Raises:
        HostError: there is no engine that could be used.
    """
    if chosen["launch"] == "fork":
        # Forked first: it must inherit nothing that is made here.
        fork_server = ForkServer(load, report, not_theirs, apart=False)
        return ForkedNodes(Fleet(engine.connect(), run_names.new(), chosen["image"]), fork_server)
    fleet = Fleet(
        engine.connect(),
        run_names.new(),
        chosen["image"],
        command=["python", "-m", "testbed.containers.inside"],
        mounts=chosen["mounts"],
        environment=chosen["environment"],
    )
    shared = entry_point.resolve(load["shared"])(load["arguments"])
    inside = {"entry": load["entry_inside"], "arguments": load["arguments"]}
    return StartedNodes(fleet, Gate(fleet.folder, inside, shared, report.fileno()))


class _ContainerNodes:
    """What is the same however a role comes into its container."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._planned: dict[str, float | None] = {}
        self._killed: set[str] = set()

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        self._planned = {device.name: device.cpus for device in devices}
        self._fleet.create(devices, abandoned)

    def network(self, device: str) -> int:
        return self._fleet[device].network

    def freeze(self, device: str) -> None:
        self._fleet.freeze(device)

    def thaw(self, device: str) -> None:
        self._fleet.thaw(device)

    def kill(self, device: str) -> None:
        self._killed.add(device)
        self._fleet.kill(device)

    def _explained(self, event: dict[str, Any]) -> dict[str, Any]:
        """An event with why its process was killed, where nobody asked for it."""
        match event:
            case {"exited": device, "status": status}:
                asked = device in self._killed
                self._killed.discard(device)
                if status == -signal.SIGKILL and not asked:
                    limit = self._fleet.ran_out_of_memory(device)
                    return event if limit is None else event | {"out_of_memory": limit}
        return event

    def limit(self, device: str, cpus: float | None) -> None:
        own = self._planned[device] if cpus is None else cpus
        processors.limit(self._fleet[device].first, own)


class ForkedNodes(_ContainerNodes):
    """``launch: fork``; see ``testbed.nodes.interface.Nodes``."""

    def __init__(self, fleet: Fleet, fork_server: ForkServer) -> None:
        super().__init__(fleet)
        self._fork_server = fork_server

    @property
    def fork_server(self) -> int | None:
        return self._fork_server.process

    def fileno(self) -> int:
        return self._fork_server.channel.fileno()

    def events(self) -> Iterator[dict[str, Any]]:
        return map(self._explained, self._fork_server.events())

    def has_room(self) -> bool:
        return self._fork_server.channel.has_room()

    def start(self, device: str, role: Mapping[str, Any]) -> None:
        self._fork_server.start(device, role, enter=self._fleet[device].first)

    def kill(self, device: str) -> None:
        self._killed.add(device)
        # The container stays, for its next role: the engine removes one that has ended.
        self._fork_server.signal(device, signal.SIGKILL)
        self._fleet.thaw(device)  # paused, it would die only then

    def take_down(self) -> str | None:
        self._fork_server.end()
        return self._fleet.take_down()


class StartedNodes(_ContainerNodes):
    """``launch: image``; see ``testbed.nodes.interface.Nodes``."""

    def __init__(self, fleet: Fleet, gate: Gate) -> None:
        super().__init__(fleet)
        self._gate = gate
        self.fork_server: int | None = None

    def fileno(self) -> int:
        return self._gate.fileno()

    def events(self) -> Iterator[dict[str, Any]]:
        for event in self._gate.events():
            if "started" in event:
                event["process"] = self._fleet[event["started"]].first
            yield self._explained(event)

    def has_room(self) -> bool:
        return True  # every container has a connection of its own

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        self._gate.expect(devices)
        super().create(devices, abandoned)
        for device in devices:
            if device.name in self._fleet:
                self._gate.watch(device.name, self._fleet[device.name].first)

    def start(self, device: str, role: Mapping[str, Any]) -> None:
        self._gate.start(device, role)

    def take_down(self) -> str | None:
        self._gate.close()
        return self._fleet.take_down()

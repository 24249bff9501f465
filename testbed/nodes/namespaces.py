"""Nodes made of namespaces: without a daemon, by root or in one user namespace."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence

from testbed.channel import Channel
from testbed.errors import HostError
from testbed.messages.agent_reports import NodeEvent
from testbed.messages.planned_nodes import PlannedNodes
from testbed.messages.requests import Load
from testbed.nodes import control_group, linux
from testbed.nodes.control_group import ControlGroup
from testbed.nodes.fork_server_client import ForkServerClient
from testbed.nodes.node_interface import Device

NODES_PER_CHECK = 100
"""Nodes made between two calls of ``abandoned``."""


class NamespaceNodes:
    """Nodes made of namespaces; see ``testbed.nodes.node_interface.Nodes``."""

    def __init__(self, planned: PlannedNodes, load: Load, not_theirs: Channel) -> None:
        """Fork the fork server, which gets the arguments, and make the run's control group."""
        self._fork_server = ForkServerClient(load, not_theirs, apart=True, nodes=planned)
        self._group = control_group.create()
        self._account = control_group.create_account(self._group)
        self._networks: dict[str, int] = {}

    @property
    def fork_server(self) -> int | None:
        return self._fork_server.process

    def fileno(self) -> int:
        return self._fork_server.channel.fileno()

    def events(self) -> Iterator[NodeEvent]:
        return self._fork_server.events()

    def has_room(self) -> bool:
        return self._fork_server.channel.has_room()

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        for number, device in enumerate(devices):
            if number % NODES_PER_CHECK == 0 and abandoned(number):
                return
            self._networks[device.name] = linux.new_network()

    def network(self, device: str) -> int:
        return self._networks[device]

    def containers(self) -> Mapping[str, int]:
        return {}

    def start(self, device: str, role: Mapping[str, object], report: int) -> None:
        descriptors = [report, self._networks[device]]
        for group in self._groups:
            members = group.child(device).members_file
            descriptors.append(os.open(members, os.O_WRONLY | os.O_CLOEXEC))
        self._fork_server.start(device, role, descriptors)
        for fd in descriptors[2:]:
            os.close(fd)

    @property
    def _groups(self) -> list[ControlGroup]:
        both = self._group, self._account
        return list(dict.fromkeys(group for group in both if group is not None))

    def processor_seconds(self, device: str) -> float | None:
        if self._account is None:
            return None
        try:
            return control_group.processor_seconds(self._account.path / device)
        except FileNotFoundError:  # no role of it was started yet
            return 0.0

    def freeze(self, device: str) -> None:
        if self._group:
            self._group.child(device).freeze()
        else:
            self._fork_server.signal(device, signal.SIGSTOP)

    def thaw(self, device: str) -> None:
        if self._group:
            self._group.child(device).thaw()
        else:
            self._fork_server.signal(device, signal.SIGCONT)

    def kill(self, device: str) -> None:
        # The fork server kills what has not joined the group yet, when it comes to it: a frozen process
        # must not go on before that.
        self._fork_server.signal(device, signal.SIGKILL)
        if self._group:
            self._group.child(device).kill()
        else:
            self.thaw(device)

    def limit(self, device: str, cpus: float | None) -> None:
        raise HostError(
            "only a container engine limits processors: use devices.runtime docker, or slow the device "
            "down by a factor"
        )

    def take_down(self) -> str | None:
        try:
            if self._group:
                for child in self._group.path.glob("*/"):
                    control_group.ControlGroup(child, self._group.version).thaw()
        finally:
            self._fork_server.end()
            for group in self._groups:
                group.remove()
        return None

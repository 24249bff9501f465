"""The orchestrator's side of a host whose agent was started by hand: call it, and relay to it."""

import contextlib
import functools
import json
import os
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import psutil

from testbed.channel import Channel
from testbed.code_digest import package_digest
from testbed.doctor.findings import Finding, Leftover
from testbed.errors import HostError
from testbed.json_dataclasses import of_plain
from testbed.messages.agent_reports import HostLost
from testbed.messages.codec import send
from testbed.network.underlay import PORT
from testbed.nodes import forked_process, run_names
from testbed.nodes.node_table import publish
from testbed.orchestrator.hosts.host_paths import measured
from testbed.orchestrator.hosts.hosts_file import OtherHost
from testbed.orchestrator.hosts.inquiries import (
    CleanHost,
    DatasetRead,
    ExamineHost,
    FindPaths,
    FindRoom,
    HostCleaned,
    HostClock,
    HostExamined,
    MeasurePath,
    OpenPath,
    PathMeasured,
    PathOpened,
    PathsMissing,
    ReadDataset,
    RoomFound,
    ask,
)
from testbed.orchestrator.hosts.relay import CONTROL, FIRST_ORDERS, FrameKind, Relay
from testbed.orchestrator.hosts.secured_connection import ConnectionLostError, SecuredConnection
from testbed.version import VERSION

PATIENCE = 10.0
"""Seconds in which a host must answer."""
HOST = "host"
"""The name under which a relay publishes its ``HostTable``."""


def own_processors() -> int:
    """Return the number of processors that this host's devices may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts that a host reports before it is asked for anything.

    Attributes:
        code: the digest of its code.
        processors, memory: the number that devices may use, and all its bytes.
        root: True if its agents are root's.
        network: the id of its network namespace.
        addresses: its IPv4 addresses.
    """

    version: str
    code: str
    processors: int
    memory: int
    root: bool
    network: str
    addresses: Sequence[str]


class SharedThere(TypedDict):
    """The resources that a host makes for its devices to share.

    Attributes:
        orders: the numbers of the devices that get orders.
        paces: the number of factors of their durations.
        states: the numbers of the devices that keep states of their own.
    """

    orders: Sequence[int]
    paces: int
    states: Sequence[int]


@dataclass(frozen=True, slots=True)
class HostTable:
    """The way to enter devices of a run on another host, published as long as that is not lost.

    Attributes:
        host: where its agent is.
        secret: the hosts'.
        first_tunnel: the number of the run's first tunnel, by which it is known there.
    """

    host: OtherHost
    secret: str
    first_tunnel: int
    devices: Sequence[str]


@dataclass(frozen=True, slots=True)
class Member:
    """A host of a run besides the orchestrator's own, whose agent has been called.

    Attributes:
        clock: the differences between this host's clocks and its clocks.
        secret: the hosts'.
        network: the id of its network namespace.
    """

    host: OtherHost
    connection: SecuredConnection
    processors: int
    memory: int
    clock: HostClock
    secret: bytes = field(repr=False)
    network: str

    @classmethod
    def called(cls, host: OtherHost, secret: bytes, patience: float = PATIENCE) -> "Member":
        """Call a host's agent.

        Args:
            patience: seconds in which it must answer.

        Raises:
            HostError: it is not there, does not know the secret, or cannot take part.
        """
        what = host.described
        try:
            connection = socket.create_connection((host.address, host.port), patience)
        except OSError as error:
            raise HostError(
                f"{what}: no agent answers ({error.strerror or error}): start `testbed agent` there"
            ) from error
        with contextlib.ExitStack() as refused:
            refused.callback(connection.close)
            try:
                secured = SecuredConnection.proven(connection, secret, calls=True, seconds=patience)
                secured.send(FrameKind.OPEN, CONTROL, b"{}")
                found = of_plain(HostFacts, json.loads(secured.receive()[0].content))
                clock = HostClock.of(secured)
            except ValueError as error:
                # It knows the secret, and says something else than what this code asks for.
                raise HostError(
                    f"{what}: it runs other code, whose answer version {VERSION} cannot read"
                ) from error
            except (ConnectionLostError, IndexError) as error:
                raise HostError(f"{what}: {error}") from error
            if found.code != package_digest():
                raise HostError(
                    f"{what}: it runs other code (version {found.version}; here it is {VERSION})"
                )
            if not found.root:
                raise HostError(f"{what}: links between hosts need an agent of root there")
            if host.underlay not in found.addresses:
                raise HostError(
                    f"{what}: {host.underlay}, its address for links (`underlay`), is none of its "
                    f"addresses: {', '.join(found.addresses)}"
                )
            refused.pop_all()
        able = found.processors, found.memory
        return cls(host, secured, *able, clock, secret, found.network)

    def examined(self) -> list[Finding]:
        """Return what ``testbed doctor`` finds there.

        Raises:
            HostError: it does not answer.
        """
        with self._answering():
            return [
                of_plain(Finding, one)
                for one in ask(self.connection, ExamineHost(), HostExamined).findings
            ]

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        """Return which of some paths it does not have.

        Raises:
            HostError: it does not answer.
        """
        with self._answering():
            return ask(self.connection, FindPaths(paths), PathsMissing).paths

    def fingerprint(self, dataset: str) -> str:
        """Return the ``learning.data.catalogue.fingerprint`` of a dataset there.

        Raises:
            HostError: it does not answer, or does not have the dataset.
        """
        with self._answering():
            return ask(self.connection, ReadDataset(dataset), DatasetRead).fingerprint

    def check_room(self, devices: int, shared_memory: int, memory_per_device: float) -> None:
        """Check that it has room for devices; see ``doctor.requirements.check_room_of``.

        Raises:
            HostError: it does not answer, or has not.
        """
        with self._answering():
            ask(self.connection, FindRoom(devices, shared_memory, memory_per_device), RoomFound)

    def cleaned(self) -> list[Leftover]:
        """Have it remove what killed runs left there; return each of it.

        Raises:
            HostError: it does not answer.
        """
        with self._answering():
            return [
                of_plain(Leftover, one)
                for one in ask(self.connection, CleanHost(), HostCleaned).leftovers
            ]

    def way_from(self, source: str, seconds: float = 0.0, tunnels: int = PORT) -> PathMeasured:
        """Measure the way to it from this host; see ``MeasurePath``.

        Args:
            source: the address of this host in the underlay.

        Raises:
            HostError: there is none.
        """
        with self._answering():
            way = source, self.host.underlay, self._opened()
            return measured(MeasurePath(*way, seconds, tunnels), self.secret)

    def way_to(self, other: "Member", seconds: float, tunnels: int) -> PathMeasured:
        """Have it measure the way to another host.

        Raises:
            HostError: there is none.
        """
        with self._answering():
            way = self.host.underlay, other.host.underlay, other._opened()
            return ask(self.connection, MeasurePath(*way, seconds, tunnels), PathMeasured)

    def _opened(self) -> int:
        return ask(self.connection, OpenPath(self.host.underlay), PathOpened).port

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except ConnectionLostError as error:
            raise HostError(f"{self.host.described}: {error}") from error

    def begin(
        self,
        orders: Mapping[int, socket.socket],
        control: Channel,
        output: int,
        handed: Collection[int],
        *,
        paces: int,
        states: Sequence[int],
        table: HostTable,
    ) -> psutil.Process:
        """Start the process that stands for the host's agent here; see ``agent.process.Begin``.

        Args:
            orders: the devices' ends of the channels of orders, by the devices' numbers; closed here.
            paces, states: as in ``SharedThere``.
            table: what is published for ``testbed exec``.
        """
        assert not handed  # descriptors do not cross hosts
        wanted: SharedThere = {"orders": [*orders], "paces": paces, "states": states}
        self.connection.send(FrameKind.OPEN, CONTROL, json.dumps(wanted).encode())
        own = self.connection.socket
        kept = (own.fileno(), control.fileno(), *(end.fileno() for end in orders.values()))
        with Path(os.devnull).open("rb") as nothing:
            process = forked_process.fork(
                f"{run_names.RELAY}-{self.host.name}",
                functools.partial(self._relay, table, orders, control),
                (nothing.fileno(), output, output),
                kept,
            )
        control.close()
        for end in orders.values():
            end.close()
        own.close()
        return psutil.Process(process)

    def _relay(
        self, table: HostTable, orders: Mapping[int, socket.socket], control: Channel
    ) -> int:
        publish(HOST, table)
        end = socket.socket(fileno=os.dup(control.fileno()))
        ends = {CONTROL: end} | {FIRST_ORDERS + n: one for n, one in orders.items()}
        try:
            relay = Relay(self.connection, ends, calls=True, output=lambda data: os.write(1, data))
            control.close()
            relay.run()
        except ConnectionLostError as error:
            with contextlib.suppress(OSError):
                send(Channel(end), HostLost(str(error)))
            return 1
        return 0

"""The links of a run once the agent has built them, and what counts, captures and impairs on them.

This module is imported after the fork of the fork server, so that none of it is in the nodes' memory.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from testbed.errors import HostError
from testbed.json_dataclasses import of_plain
from testbed.messages.agent_reports import (
    BackgroundCounted,
    CountersSampled,
    DeviceFrozen,
    DeviceThawed,
    Event,
    LinkBytesRead,
    LinksCounted,
    LinksProbed,
    ProcessorTimesRead,
    SocketsCounted,
    UplinksSampled,
    WarningRaised,
)
from testbed.messages.planned_nodes import PlannedNetwork, PlannedUnderlay
from testbed.messages.requests import ImpairmentRequest, SetLink
from testbed.network import building
from testbed.network.links import CORE, Link
from testbed.network.topology import Network
from testbed.network.tunnel_guard import TunnelGuard
from testbed.network.underlay import Underlay
from testbed.nodes import linux
from testbed.nodes.node_interface import Nodes
from testbed.nodes.node_table import NodeTable
from testbed.orchestrator.agent.background_traffic import BackgroundTraffic
from testbed.orchestrator.agent.device_faults import DeviceFaults
from testbed.orchestrator.agent.host_readings import HostReadings, ProcessorTimes
from testbed.orchestrator.agent.link_counters import LinkCounters
from testbed.orchestrator.agent.metrics_samples import MetricsSamples
from testbed.orchestrator.agent.observation import Observation
from testbed.orchestrator.agent.probing import probe_links
from testbed.orchestrator.agent.usage import Usage
from traffic.sockets import Socket, SocketLedger

SOCKET_ROWS = 500
"""Sockets in one message."""


class RunNetwork:
    """The network of one run; what is read of it is reported at once.

    Attributes:
        period: seconds between two samples of all counters.
    """

    def __init__(
        self,
        plan: PlannedNetwork,
        nodes: Nodes,
        links: "BuiltLinks",
        report: Callable[[Event], None],
    ) -> None:
        """Begin to count on links that are there; no device may have sent anything yet.

        Raises:
            HostError, TrafficError: something cannot be counted or captured.
        """
        network, networks, queues = links.network, links.networks, links.queues
        self._report = report
        self._guard = links.guard
        called = [network.link(device).address for device in plan["cut_from"]]
        self._faults = DeviceFaults(
            *(network, networks, called, nodes, queues.fair),
            local=queues.local,
            cut_between=plan.get("cut_between", {}),
        )
        self._beside = {worker: server for server, worker in queues.local.items()}
        self._sockets = SocketLedgers(plan.get("sockets", ()), networks)
        with ExitStack() as begun:
            background = plan.get("background")
            self._background = (
                BackgroundTraffic(background, network, networks) if background else None
            )
            if self._background:
                begun.callback(self._background.abandon)
            self._observation = Observation(
                plan["traffic"], network, queues, networks, self._background
            )
            begun.callback(self._observation.abandon)
            self._links = LinkCounters(network, queues, networks)
            self._host = HostReadings() if plan.get("timed") else None
            self._usage = Usage(nodes.fork_server)
            if self._background:
                self._usage.helper(self._background.process, "background traffic")
            self._times = ProcessorTimes(nodes, plan.get("measured", ()), self._usage)
            self._metrics = None
            if plan["traffic"].get("metrics"):
                self._metrics = MetricsSamples(
                    network, queues, networks, self._observation, self._usage
                )
            if self._background:
                self._background.await_start()
            self._begun = begun.pop_all()
        self.period = self._observation.period

    # -- what happens to devices

    def started(self, device: str, process: int) -> None:
        """Read the use of a device's process from now on."""
        self._usage.started(device, process)

    def joined(self, device: str) -> None:
        """Send a device its background traffic: its role has been started."""
        if self._background:
            self._background.started(device)

    def ended(self, device: str) -> None:
        """Send no background traffic for a device whose process has ended."""
        if self._background:
            self._background.ended(device)

    def frozen(self, device: str, *, frozen: bool) -> None:
        """Stop the background traffic of a frozen device, or go on with it."""
        if self._background:
            self._background.freeze(device, frozen)
        if self._metrics:
            self._report(DeviceFrozen(device) if frozen else DeviceThawed(device))

    def give_up(self, devices: Sequence[str]) -> None:
        """Reset the connections to devices of a lost host."""
        try:
            self._faults.give_up(devices)
        except OSError as error:
            text = f"the connections to the devices of a lost host stay open: {error.strerror}"
            self._report(WarningRaised(text))

    def impair(self, request: ImpairmentRequest) -> None:
        """Apply a fault to a link or a node, or undo it."""
        self._faults.serve(request)
        if isinstance(request, SetLink) and self._background:
            self._background.link(request.device, request.up)
            if (server := self._beside.get(request.device)) is not None:
                self._background.link(server, request.up)

    def send_background(self, *, begin: bool) -> None:
        """Begin the background traffic or end it for good."""
        if self._background:
            (self._background.begin if begin else self._background.end)()

    # -- what is read

    def read(self) -> None:
        """Read what is read at each regular time: ingress, sockets, and now and then the host."""
        if self._observation.counts_ingress:
            self.read_ingress()
        self._sockets.take()
        if self._host and self._host.is_due:
            self._report(self._host.read())

    def read_ingress(self) -> None:
        """Read the counters of ingress."""
        self._report(self._observation.read(self._egress()))

    def read_processors(self) -> None:
        """Read the devices' processor times."""
        self._report(ProcessorTimesRead(*self._times.read()))

    def sample(self) -> None:
        """Read the counters of links, and what only metrics need."""
        for one in (self._observation, self._background):
            if one and (complaint := one.complaint()):
                self._report(WarningRaised(complaint))
        for rows in self._observation.sample():
            self._report(CountersSampled(rows))
        if self._times.is_due:
            self.read_processors()
        if self._metrics:
            for rows in self._metrics.uplinks():
                self._report(UplinksSampled(rows))
            if self._observation.counts_ingress:  # by role, of the orchestrator's host
                self._report(self._metrics.processes())

    def _egress(self) -> dict[str, float] | None:
        return self._metrics.egress() if self._metrics else None

    def stop(self) -> None:
        """Wait until the links are quiet, end the capture, and read everything once more."""
        if self._background:
            self._background.end()
        if self._observation.counts_ingress:
            self._report(self._observation.stop(self._egress(), self._faults.isolate))
        elif self._background:
            self._observation.wait_until_quiet()
            self._report(BackgroundCounted(self._background.received(), self._background.sent))
        for counted in self._sockets.read():
            self._report(counted)
        for rows in self._links.read():
            self._report(LinkBytesRead(rows))
        self.sample()
        self.read_processors()

    def abandon(self) -> None:
        """End the processes that send and capture."""
        self._begun.close()


class BuiltLinks:
    """The links of a run as they were made, with nothing on them yet.

    Attributes:
        networks: descriptor of the network namespace of each node of this host, by name.
        queues: at the ends of links.
        guard: keeps strangers' packets out of links to other hosts, as long as this process lives.
    """

    def __init__(
        self,
        plan: PlannedNetwork,
        nodes: Nodes,
        report: Callable[[Event], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Make the links between nodes that are there, or some of them if the run is over meanwhile.

        Args:
            is_over: called now and then; returns True if the run is over.

        Raises:
            HostError: they cannot be made.
        """
        links = tuple(of_plain(Link, one) for one in plan["links"])
        delays = tuple((up, down) for up, down in plan.get("delays", ()))
        self.network = Network(links, tuple(plan["routers"]), delays)
        self.queues = building.Queues(
            plan["counted"],
            plan["uncounted"],
            {(one["link"], one["up"]): one["pairs"] for one in plan["shared"]},
            plan["captured"],
            plan.get("local", {}),
            plan.get("above", {}),
        )
        self._underlay = _underlay(plan.get("underlay"))
        elsewhere = self._underlay.elsewhere if self._underlay else {}
        self.guard: TunnelGuard | None = None
        if self._underlay:
            try:
                self.guard = TunnelGuard(self._underlay, len(links))
            except HostError as error:
                report(WarningRaised(str(error)))
        # A router is a network namespace without a process; it goes when this process ends.
        self._routers = tuple(one for one in self.network.routers if one not in elsewhere)
        self.networks = {
            **{one: nodes.network(one) for one in self.network.devices if one not in elsewhere},
            **{
                one: linux.own_network() if one == CORE else linux.new_network()
                for one in self._routers
            },
        }

        def linked(count: int) -> bool:
            report(LinksCounted(count))
            return is_over()

        building.build(
            *(self.network, self.networks, self.queues, linked, plan["sysctls"]),
            underlay=self._underlay,
        )

    def probe(
        self, asked: Sequence[Mapping[str, object]], is_over: Callable[[], bool]
    ) -> LinksProbed:
        """Probe links, before anything counts or captures, so that the probe is in no ledger."""
        links = [of_plain(Link, one) for one in asked]
        return LinksProbed(probe_links(links, self.networks, is_over))

    def publish(self, nodes: Nodes) -> None:
        """Make the nodes known to ``testbed exec``."""
        first = self._underlay.first_network if self._underlay else None
        NodeTable(
            self.networks, self._routers, nodes.containers(), nodes.fork_server, first
        ).publish()


class SocketLedgers:
    """The ledgers of sockets, one in the network namespace of each device."""

    def __init__(self, devices: Sequence[str], namespaces: Mapping[str, int]) -> None:
        """Record the connections that end in the devices' networks from now on.

        Args:
            namespaces: descriptor of each device's network namespace, by name.

        Raises:
            TrafficError: the kernel does not show TCP sockets.
        """
        self._ledgers: dict[str, SocketLedger] = {}
        self._ended: dict[str, list[Socket]] = {}
        for device in devices:
            with linux.inside_network(namespaces[device]):
                self._ledgers[device] = SocketLedger()
            self._ended[device] = []

    def take(self) -> None:
        """Take in the connections that have ended; to be called often, as the kernel keeps few."""
        for device, ledger in self._ledgers.items():
            self._ended[device] += ledger.take()

    def read(self) -> Iterator[SocketsCounted]:
        """Yield all connections, in parts: those that live, and those that have ended.

        Raises:
            TrafficError: the kernel does not show TCP sockets.
        """
        for device, ledger in self._ledgers.items():
            found = ledger.living()
            self.take()
            found += self._ended[device]
            forgotten = [list(one) for one in ledger.forgotten]
            rows = [list(one) for one in found]
            for first in range(0, max(1, len(rows)), SOCKET_ROWS):
                part = rows[first : first + SOCKET_ROWS]
                yield SocketsCounted(device, part, ledger.lost, forgotten if first == 0 else [])


def _underlay(plan: PlannedUnderlay | None) -> Underlay | None:
    """Return what the plan says of other hosts, with this host's own network; None if of none.

    Raises:
        HostError: this agent is not root's.
    """
    if plan is None:
        return None
    try:
        # The orchestrator, or the service that stands for it here, is outside the run.
        host = os.open(f"/proc/{os.getppid()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with linux.inside_network(host):
            pass
    except PermissionError as error:
        raise HostError("links between hosts need root, on each host") from error
    return Underlay(host, plan["address"], plan["elsewhere"], plan["first"], plan["port"])

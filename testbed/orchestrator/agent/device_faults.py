"""Faults applied by the agent to working nodes and links; see ``DeviceFaults``.

How long a fault lasts, and what two faults on one device add up to, is decided by the orchestrator.
What strikes the link of a worker with a server on its machine strikes the machine's, so that it is the
server's as well; what the two send each other crosses no link, and passes.
Of a link that crosses hosts each host's agent changes the end that it has.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pyroute2 import IPRoute

from testbed.device_names import is_worker
from testbed.faults.slowdown import least
from testbed.messages.requests import (
    ImpairmentRequest,
    LimitProcessors,
    SetCorruption,
    SetLink,
    SetPartition,
    SetRates,
    SetTracedRates,
)
from testbed.network import outages
from testbed.network.building import DEVICE_INDEX
from testbed.network.fair_queues import FairEgress
from testbed.network.links import Shape
from testbed.network.netlink import Requests
from testbed.network.resets import reset_connections
from testbed.network.shaping import Egress
from testbed.network.topology import Direction, Network
from testbed.network.underlay import INNER_MTU
from testbed.nodes.linux import inside_network
from testbed.nodes.node_interface import Nodes

_NO_RATES = (None, None)
_CHANGES_AT_ONCE = 100
"""Requests of one call, whose answers fit into a socket's buffer."""


def _egress(interface: int, shape: Shape, pairs: Sequence[tuple[str, str]] | None) -> Egress:
    return FairEgress(interface, shape, len(pairs)) if pairs else Egress(interface, shape)


class DeviceFaults:
    """Applies faults, and the rates of traces, to the links and nodes of one run."""

    def __init__(
        self,
        network: Network,
        networks: Mapping[str, int],
        servers: Sequence[str],
        nodes: Nodes,
        shared: Mapping[Direction, Sequence[tuple[str, str]]] | None = None,
        *,
        local: Mapping[str, str] | None = None,
        cut_between: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Take over all links and nodes as planned, without faults.

        Args:
            networks: descriptor of the network namespace of each node of this host, by name.
            servers: IPv4 addresses of the devices that others are cut off from.
            shared: the directions of links whose rate pairs of devices share fairly.
            local: the worker on the machine of each server that has one there.
            cut_between: the devices that aggregators are cut off from, in the servers' place.
        """
        self._links = links = {device: network.link(device) for device in network.devices}
        self._inside = {device: [link.address] for device, link in links.items()}
        """The addresses at the far end of each device's link: of all devices on its machine."""
        self._outside: dict[str, list[tuple[str, str]]] = {}
        """The pairs of addresses that a cut of a device is between, if not it and every server."""
        for device, others in cut_between.items():
            own = links[device].address
            self._outside[device] = [(own, links[other].address) for other in others]
        for server, worker in (local or {}).items():
            own, beside = links[worker].address, links[server].address
            machine = links[worker].router
            links[worker] = next(link for link in network.links if link.node == machine)
            self._inside[worker] = [own, beside]
            workers = [network.link(one).address for one in network.devices if is_worker(one)]
            self._outside[worker] = [(own, other) for other in servers if other != beside]
            self._outside[worker] += [(beside, other) for other in workers if other != own]
        self._networks = networks
        self._servers = servers
        self._nodes = nodes
        self._down: set[str] = set()
        self._cut: set[str] = set()
        self._cuts: Counter[tuple[str, str, str]] = Counter()
        """How often two addresses are cut off from each other by rules of a router."""
        self._silent: set[tuple[str, bool]] = set()
        # Rates of uplink and downlink: what faults leave, and those of traces.
        self._limits: dict[str, Sequence[int | None]] = {}
        self._traced: dict[str, Sequence[int | None]] = {}
        self._uplinks = {
            name: _egress(
                DEVICE_INDEX + (link.index if link.node in network.routers else 0),
                link.uplink,
                (shared or {}).get((link.index, True)),
            )
            for name, link in links.items()
        }
        self._downlinks = {
            name: _egress(
                DEVICE_INDEX + link.index, link.downlink, (shared or {}).get((link.index, False))
            )
            for name, link in links.items()
        }

    def serve(self, request: ImpairmentRequest) -> None:
        """Do what a request asks for.

        Raises:
            NetlinkError: the kernel refuses.
            HostError: the processors of nodes of this kind cannot be limited.
        """
        match request:
            case SetLink(device, up):
                self._mark(self._down, [device], not up, self._set_link)
            case SetPartition(devices, cut):
                self._mark(self._cut, devices, cut, self._set_cut)
            case SetRates(device, uplink, downlink):
                self._limits[device] = uplink, downlink
                self._set_rates(device)
            case SetTracedRates(rates):
                self._traced.update(rates)
                self._follow(rates)
            case SetCorruption(device, share):
                self._set_uplink(device, replace(self._uplinks[device].shape, corrupt=share))
            case LimitProcessors(device, cpus):
                self._nodes.limit(device, cpus)

    def _mark(
        self,
        marked: set[str],
        devices: Sequence[str],
        mark: bool,
        change: Callable[[str, bool], None],
    ) -> None:
        for device in devices:
            if (device in marked) is not mark:
                change(device, mark)
                marked ^= {device}

    def isolate(self, devices: Sequence[str]) -> None:
        """Drop all that is sent to devices, for good."""
        for device in devices:
            with inside_network(self._networks[self._links[device].router]):
                self._set_silent(device, up=False, silent=True)

    def give_up(self, devices: Sequence[str]) -> None:
        """Take the links of devices down, and reset the connections of this host's devices to them.

        Raises:
            OSError: the kernel cannot reset connections.
        """
        self._mark(self._down, devices, True, self._set_link)
        addresses = {self._links[device].address for device in devices}
        for device in self._links.keys() & self._networks.keys():
            with inside_network(self._networks[device]):
                reset_connections(addresses)

    def _set_link(self, device: str, down: bool) -> None:
        link = self._links[device]
        if link.router in self._networks:
            mtu = None if link.node in self._networks else INNER_MTU
            beyond = [one for one in self._inside[device] if one != link.address]
            with inside_network(self._networks[link.router]):
                outages.set_link(link, up=not down, mtu=mtu, beyond=beyond)
        elif link.node in self._networks:
            with inside_network(self._networks[link.node]):
                outages.set_carrier(there=not down)

    def _set_cut(self, device: str, cut: bool) -> None:
        link = self._links[device]
        pairs = self._outside.get(device) or [
            (link.address, server) for server in self._servers if server != link.address
        ]
        with inside_network(self._networks[link.router]):
            for one, other in pairs:
                pair = link.router, min(one, other), max(one, other)
                # Two devices that are both cut off, peers or those on machines with servers, are cut
                # off from each other by either of the two.
                before = self._cuts[pair]
                self._cuts[pair] += 1 if cut else -1
                if not (before and self._cuts[pair]):
                    outages.drop(add=cut, source=one, destination=other)
                    outages.drop(add=cut, source=other, destination=one)

    def _set_rates(self, device: str) -> None:
        rate = self._rate(device, up=True)
        self._set_uplink(device, replace(self._uplinks[device].shape, rate=rate))
        rate = self._rate(device, up=False)
        router = self._networks.get(self._links[device].router)
        if router is not None:
            with inside_network(router), IPRoute() as netlink:
                below = self._downlinks[device]
                below.change(netlink, replace(below.shape, rate=rate))

    def _rate(self, device: str, *, up: bool) -> int | None:
        """Return the rate of one direction; that of before while its trace lets nothing pass."""
        place = 0 if up else 1
        limit, traced = (of.get(device, _NO_RATES)[place] for of in (self._limits, self._traced))
        if traced == 0:
            return (self._uplinks if up else self._downlinks)[device].shape.rate
        if traced is not None:
            return least((limit, traced))
        link = self._links[device]
        return (link.uplink if up else link.downlink).rate if limit is None else limit

    def _follow(self, devices: Iterable[str]) -> None:
        """Apply the rates of traces: all of a router's in one call, as there may be many."""
        by_router: dict[str, list[str]] = {}
        for device in devices:
            if (router := self._links[device].router) in self._networks:
                by_router.setdefault(router, []).append(device)
            if (node := self._links[device].node) in self._networks:
                with inside_network(self._networks[node]):
                    self._add_rates(self._uplinks, [device], up=True)
        for router, below in by_router.items():
            with inside_network(self._networks[router]):
                self._add_rates(self._downlinks, below, up=False)
                for device in below:
                    for place, up in enumerate((True, False)):
                        self._set_silent(device, up=up, silent=self._traced[device][place] == 0)

    def _add_rates(
        self, interfaces: Mapping[str, Egress], devices: Sequence[str], *, up: bool
    ) -> None:
        with contextlib.closing(Requests()) as requests:
            for number, device in enumerate(devices, 1):
                rate = self._rate(device, up=up)
                if rate is not None:
                    interfaces[device].add_rate(requests, rate)
                if number % _CHANGES_AT_ONCE == 0:
                    requests.carry_out()
            requests.carry_out()

    def _set_silent(self, device: str, *, up: bool, silent: bool) -> None:
        """Drop all packets of a direction, or pass them again; call it inside the device's router."""
        if ((device, up) in self._silent) is not silent:
            for own in self._inside[device]:
                source, destination = (own, None) if up else (None, own)
                outages.drop(add=silent, source=source, destination=destination)
            self._silent ^= {(device, up)}

    def _set_uplink(self, device: str, shape: Shape) -> None:
        if (node := self._links[device].node) in self._networks:
            with inside_network(self._networks[node]), IPRoute() as netlink:
                self._uplinks[device].change(netlink, shape)

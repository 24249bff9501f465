"""Faults applied by the agent to working nodes and links; see ``DeviceFaults``.

How long a fault lasts, and what two faults on one device add up to, is decided by the orchestrator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyroute2 import IPRoute

from testbed.messages.requests import (
    ImpairmentRequest,
    LimitProcessors,
    SetCorruption,
    SetLink,
    SetPartition,
    SetRates,
)
from testbed.network import outages
from testbed.network.building import DEVICE_INDEX
from testbed.network.graph import Network
from testbed.network.links import Link, Shape
from testbed.network.shaping import Egress
from testbed.nodes.interface import Nodes
from testbed.nodes.linux import inside_network


class DeviceFaults:
    """Applies faults to the links and nodes of one run."""

    def __init__(
        self, network: Network, networks: Mapping[str, int], server: str, nodes: Nodes
    ) -> None:
        """Begin with all links and nodes as planned.

        Args:
            network: of the run.
            networks: descriptor of each node's network namespace, by name.
            server: IPv4 address of the device that others are cut off from.
            nodes: every node of the run.
        """
        self._links = links = {device: network.link(device) for device in network.devices}
        self._networks = networks
        self._server = server
        self._nodes = nodes
        self._down: set[str] = set()
        self._cut: set[str] = set()
        self._uplinks = {name: Egress(DEVICE_INDEX, link.uplink) for name, link in links.items()}
        self._downlinks = {
            name: Egress(DEVICE_INDEX + link.index, link.downlink) for name, link in links.items()
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
                self._set_rates(device, uplink, downlink)
            case SetCorruption(device, share):
                self._set_uplink(device, replace(self._uplinks[device].shape, corrupt=share))
            case LimitProcessors(device, cpus):
                self._nodes.limit(device, cpus)

    def _mark(
        self,
        marked: set[str],
        devices: Sequence[str],
        mark: bool,
        change: Callable[[Link, bool], None],
    ) -> None:
        for device in devices:
            if (device in marked) is not mark:
                change(self._links[device], mark)
                marked ^= {device}

    def _set_link(self, link: Link, down: bool) -> None:
        with inside_network(self._networks[link.router]):
            outages.set_link(link, up=not down)

    def _set_cut(self, link: Link, cut: bool) -> None:
        with inside_network(self._networks[link.router]):
            outages.set_cut(link.address, self._server, cut=cut)

    def _set_rates(self, device: str, uplink: int | None, downlink: int | None) -> None:
        planned = self._links[device]
        rate = planned.uplink.rate if uplink is None else uplink
        self._set_uplink(device, replace(self._uplinks[device].shape, rate=rate))
        rate = planned.downlink.rate if downlink is None else downlink
        with inside_network(self._networks[planned.router]), IPRoute() as router:
            below = self._downlinks[device]
            below.change(router, replace(below.shape, rate=rate))

    def _set_uplink(self, device: str, shape: Shape) -> None:
        with inside_network(self._networks[device]), IPRoute() as netlink:
            self._uplinks[device].change(netlink, shape)

"""Build a run's network from inside the core's network namespace.

A link between two hosts is a tunnel (``underlay``), and each host builds what it has of the network.

One netlink socket in each router makes its veth pairs, with the far ends already in the namespaces of
its devices or of another router; one more per device, opened inside it, gives the far end its address
and route. The requests are packed by ``netlink``: with a thousand devices they take most of the time
of building. Nothing is made in the host's own namespace: when the namespaces of the routers are gone,
every link is gone with them.

Neighbours are fixed entries and IPv6 is off, so that no ARP or router solicitation of the kernel's
own is counted as traffic of the devices.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyroute2 import IPRoute

from testbed.network.address_filters import DESTINATION, SOURCE
from testbed.network.fair_queues import LARGEST_SUPER_FRAME, packed_fair_egress, super_frame
from testbed.network.links import CORE, PREFIX_LENGTH, Link, Shape
from testbed.network.netlink import Requests
from testbed.network.shaping import FROM_ABOVE, UNCOUNTED, packed_counting, packed_egress
from testbed.network.sysctls import OF_ALL, OF_ROLES
from testbed.network.topology import Direction, Network
from testbed.network.underlay import INNER_MTU, Underlay
from testbed.nodes.linux import inside_network, own_network, set_sysctl

DEVICE_INTERFACE = "eth0"
DEVICE_INDEX = 1 << 30
"""The kernel index of a device's only interface (besides lo); link i's interface in a router has this
index + i. Indices are chosen here: looking each one up by name would list all the others, and building
the network would take time quadratic in its size. A host counts its own interfaces from 1 and never
gets this far: older kernels (6.1) refuse a tunnel the index of an interface of the host's own."""

_LEAST_SUPER_FRAME = 3_028
"""Two frames: the kernel makes no smaller super-frames than of one segment."""

LINKS_PER_CHECK = 50
"""Links built between two calls of ``abandoned``."""


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues at the ends of links, besides those for a rate, a delay or a loss.

    Attributes:
        counted: devices whose ingress is counted, at the router's end of their links.
        apart: devices that only observe: their traffic is counted separately there, and has no share of
            a link's rate.
        fair: the directions whose rate is shared fairly, with the senders and receivers (devices) that
            share it.
        captured: devices whose links are captured.
        local: for a counted device the one on the same machine, whose traffic with it crosses no link
            and is counted separately, too.
        above: for a counted aggregator the roles that it calls, whose traffic into it is counted
            separately: it is no ingress from devices, and in no sum.
    """

    counted: Sequence[str] = ()
    apart: Sequence[str] = ()
    fair: Mapping[Direction, Sequence[tuple[str, str]]] = field(default_factory=dict)
    captured: Sequence[str] = ()
    local: Mapping[str, str] = field(default_factory=dict)
    above: Mapping[str, Sequence[str]] = field(default_factory=dict)


NO_QUEUES = Queues()


def build(
    network: Network,
    namespaces: Mapping[str, int],
    queues: Queues = NO_QUEUES,
    abandoned: Callable[[int], bool] = lambda _: False,
    sysctls: Mapping[str, str] = OF_ROLES,
    *,
    underlay: Underlay | None = None,
) -> None:
    """Make the links of a network, and its routes; the current network namespace is the core.

    Args:
        namespaces: descriptor of the network namespace of each node but the core, by name.
        sysctls: the nodes' settings that are not the kernel's own, by their names.
        abandoned: called now and then with the number of links so far; True stops the building.
        underlay: what is known of the other hosts; None if all nodes are on this one. Nodes that are
            elsewhere have no namespace.
    """
    with contextlib.ExitStack() as opened:
        core = own_network()
        opened.callback(os.close, core)
        places = {**namespaces, CORE: core}
        builder = _Builder(network, places, queues, opened, sysctls, underlay=underlay)
        for number, link in enumerate(network.links):
            if number % LINKS_PER_CHECK == 0 and abandoned(number):
                return
            builder.connect(link)
        builder.add_routes()


class _Builder:
    def __init__(
        self,
        network: Network,
        namespaces: Mapping[str, int],
        queues: Queues,
        opened: contextlib.ExitStack,
        sysctls: Mapping[str, str],
        *,
        underlay: Underlay | None,
    ) -> None:
        self._network = network
        self._underlay = underlay
        self._elsewhere = underlay.elsewhere if underlay else {}
        self._sysctls = sysctls
        self._namespaces = namespaces
        self._queues = queues
        self._also_observed = _also_observed(network, queues)
        self._routers: dict[str, Requests] = {}
        self._super_frame = _super_frame(network, queues)
        shapes = (shape for link in network.links for shape in (link.uplink, link.downlink))
        self._in_order = any(shape.by_frame for shape in shapes)
        for router in network.routers:
            if router in self._elsewhere:
                continue
            with inside_network(namespaces[router]):
                self._set_up_stack()
                _prepare_router()
                self._routers[router] = opened.enter_context(contextlib.closing(Requests()))

    def connect(self, link: Link) -> None:
        """Make a link, with the queues at its ends."""
        routers = self._routers
        has_node, has_router = link.node not in self._elsewhere, link.router not in self._elsewhere
        far, name = DEVICE_INDEX + link.index, link.interface
        with contextlib.ExitStack() as opened:
            node = routers.get(link.node)
            if has_node and node is None:
                far, name = DEVICE_INDEX, DEVICE_INTERFACE
                with inside_network(self._namespaces[link.node]):
                    self._set_up_stack()
                    node = opened.enter_context(contextlib.closing(Requests()))
            self._join(link, (far, name, link.mac), has_node, has_router)
            if has_router:
                self._set_up_near_end(routers[link.router], link)
                routers[link.router].carry_out()
            if node is not None and has_node:
                if self._super_frame is not None and link.node not in routers:
                    node.limit_super_frames(far, self._super_frame)
                self._set_up_far_end(node, far, link)

    def _join(
        self, link: Link, far: tuple[int, str, str], has_node: bool, has_router: bool
    ) -> None:
        """Make the interfaces of a link that are on this host, if any is.

        Args:
            far: index, name and MAC address of the node's.
        """
        near = DEVICE_INDEX + link.index, link.interface, link.router_mac
        if has_node and has_router:
            self._routers[link.router].add_veth(*near, far, self._namespaces[link.node])
        elif has_node:
            self._add_tunnel(link, far, link.node, link.router)
        elif has_router:
            self._add_tunnel(link, near, link.router, link.node)

    def _add_tunnel(
        self, link: Link, interface: tuple[int, str, str], here: str, there: str
    ) -> None:
        """Make an end of a link in the namespace of a node that is here, to one that is elsewhere."""
        underlay = self._underlay
        assert underlay is not None
        ends = underlay.address, underlay.elsewhere[there], underlay.port
        with inside_network(underlay.namespace), contextlib.closing(Requests()) as host:
            network = underlay.network_of(link.index)
            host.add_tunnel(interface, self._namespaces[here], network, ends)
            host.carry_out()

    def _locked_mtu(self, link: Link) -> int | None:
        """Return the MTU of routes over a link that crosses; None for another.

        Without it the kernel would shorten the packets to what fits into one of the underlay's, and the
        ledgers would not be those of one host.
        """
        crosses = {link.node, link.router} & self._elsewhere.keys()
        return INNER_MTU if crosses else None

    def _set_up_near_end(self, router: Requests, link: Link) -> None:
        interface = DEVICE_INDEX + link.index
        router.add_address(interface, link.router_address, PREFIX_LENGTH)
        router.add_neighbour(interface, link.address, link.mac)
        if (mtu := self._locked_mtu(link)) is not None:
            router.add_neighbours_route(link.address, interface, mtu)
        router.shape(interface, self._packed(link, up=False))

    def _set_up_stack(self) -> None:
        _set_up_stack(self._sysctls)
        if self._in_order:
            _keep_order()

    def _set_up_far_end(self, node: Requests, interface: int, link: Link) -> None:
        node.set_up(interface)
        node.add_address(interface, link.address, PREFIX_LENGTH)
        node.add_neighbour(interface, link.router_address, link.router_mac)
        mtu = self._locked_mtu(link)
        if link.node not in self._routers:
            node.add_route(link.router_address, mtu=mtu)
        elif mtu is not None:
            node.add_neighbours_route(link.router_address, interface, mtu)
        node.shape(interface, self._packed(link, up=True))
        node.carry_out()

    def _packed(self, link: Link, *, up: bool) -> bytes:
        """Return the requests for the queues of one direction; none if nothing is shaped or counted."""
        queues, direction = self._queues, (link.index, up)
        shape = link.uplink if up else link.downlink
        uncounted = [self._address(device) for device in queues.apart]
        if direction in queues.fair:
            pairs = [(self._address(one), self._address(to)) for one, to in queues.fair[direction]]
            return packed_fair_egress(shape, pairs, uncounted)
        if link.node in queues.local:
            uncounted.append(self._address(queues.local[link.node]))
        filters = {(SOURCE, address): UNCOUNTED for address in uncounted}
        if not up and link.node in queues.counted:
            for above in queues.above.get(link.node, ()):
                filters[SOURCE, self._address(above)] = FROM_ABOVE
            return packed_counting(shape, filters)
        if direction in self._also_observed:
            filters |= {(DESTINATION, address): UNCOUNTED for address in uncounted}
            return packed_counting(Shape(), filters)
        if link.node in queues.apart and not shape.shapes:
            return b""
        return packed_egress(shape)

    def _address(self, device: str) -> str:
        return self._network.link(device).address

    def add_routes(self) -> None:
        """Give the routers the routes to the devices that are no neighbours of theirs."""
        for router, requests in self._routers.items():
            hops = list(self._network.next_links(router))
            if router != CORE and len({first.index for _, first in hops}) == 1:
                gateway, mtu = _gateway(router, hops[0][1]), self._locked_mtu(hops[0][1])
                requests.add_route(gateway, mtu=mtu)
            else:
                for number, (link, first) in enumerate(hops):
                    gateway, mtu = _gateway(router, first), self._locked_mtu(first)
                    requests.add_route(gateway, link.address, mtu=mtu)
                    if number % LINKS_PER_CHECK == 0:
                        requests.carry_out()
            requests.carry_out()


def _super_frame(network: Network, queues: Queues) -> int | None:
    """Return the most bytes that a device may hand over at once; None for the kernel's own limit.

    The slowest shared link decides, or the shortest queue, in which several have to fit: no device
    would hand a queue more at once than it has room for.
    """
    asked = [shape.queue for link in network.links for shape in (link.uplink, link.downlink)]
    limits = [super_frame(network.shape(direction).rate) for direction in queues.fair]
    limits += [max(_LEAST_SUPER_FRAME, queue // 4) for queue in asked if queue is not None]
    limits = [limit for limit in limits if limit <= LARGEST_SUPER_FRAME]
    return min(limits, default=None)


def _also_observed(network: Network, queues: Queues) -> tuple[Direction, ...]:
    """Return the directions without a shape that also the traffic of devices passes that only observe.

    It gets a class of its own there. The last link of its way to a counted device is not among them.
    """
    observed = [device for device in queues.captured if device not in queues.above]
    own = {network.link(device).index for device in queues.apart}
    counted = {(network.link(device).index, False) for device in queues.counted}
    passed = {
        direction
        for one, other in itertools.product(queues.apart, observed)
        for direction in (*network.route(one, other), *network.route(other, one))
        if direction[0] not in own
    }
    return tuple(
        direction
        for direction in sorted(passed - counted - queues.fair.keys())
        if not network.shape(direction).shapes
    )


def _gateway(router: str, link: Link) -> str:
    """Return the address of the other end of a router's link."""
    return link.router_address if link.node == router else link.address


def _prepare_router() -> None:
    """Make the current network namespace route between links."""
    set_sysctl("net.ipv4.ip_forward", "1")
    # Where delays differ by direction, packets may come another way than the answers go.
    for interfaces in ("all", "default"):
        set_sysctl(f"net.ipv4.conf.{interfaces}.rp_filter", "0")
    with IPRoute() as router:
        router.link("set", index=1, state="up")  # index 1 is always lo


def _set_up_stack(sysctls: Mapping[str, str]) -> None:
    """Set the current network namespace's own settings, before it has an interface."""
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6 sends nothing
        for name, value in OF_ALL.items():
            set_sysctl(name, value)
    for name, value in sysctls.items():
        set_sysctl(name, value)


def _keep_order() -> None:
    """Have one processor, chosen by its hash, handle all packets of a connection (Linux 6.3 or later).

    Otherwise the packets that one processor sends on an acknowledgement may overtake those that another
    one has begun to send for the process, by some microseconds. No link would do that; TCP takes it for
    a loss, and sends up to a super-frame again.
    """
    processors = sum(1 << number for number in os.sched_getaffinity(0))
    words = [processors >> shift & 0xFFFFFFFF for shift in range(0, processors.bit_length(), 32)]
    with contextlib.suppress(FileNotFoundError):
        set_sysctl("net.core.rps_default_mask", ",".join(f"{word:08x}" for word in reversed(words)))

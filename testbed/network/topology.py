"""The network of a run as a graph: devices and routers, the links between them, and the routes.

A device has one link, to its router. Routers have any number. A packet takes the shortest path: the one
with the least delay; of several, that with the fewest links; of those, the one whose links have the
lowest numbers. Routes are computed here only: the kernel's routing tables, the virtual clock and the
drawing take the same.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from testbed.network.links import CORE, Link, Shape

Direction: TypeAlias = tuple[int, bool]
"""One direction of a link: its index, and True from its node to its router, the uplink."""
_Length: TypeAlias = tuple[int, int, tuple[int, ...]]
"""The length of a path: nanoseconds of delay, the number of links, and the links' indices.

In whole numbers, so that the rest of a shortest path is a shortest path, to the bit: each router only
knows the next link.
"""


@dataclass(frozen=True)
class Network:
    """The links of a run, all of them connected.

    Attributes:
        links: the devices' first.
        others: names of routers, besides those to which a link leads.
        delays: seconds of the uplink and the downlink of each link, by which routes are chosen; empty
            if those are the delays of the links' shapes. Under the virtual clock links have no shapes,
            and routes are the same.
    """

    links: tuple[Link, ...]
    others: tuple[str, ...] = ()
    delays: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        """Check that there are routes between all nodes.

        Raises:
            ValueError: a router cannot be reached.
        """
        missing = [router for router in self.routers if router not in self._ways(CORE)]
        if missing:
            raise ValueError(f"no route leads from {CORE} to {missing[0]}")

    @cached_property
    def routers(self) -> tuple[str, ...]:
        """The routers' names, the core's first and then in the order of their links."""
        names = (CORE, *(link.router for link in self.links), *self.others)
        return tuple(dict.fromkeys(names))

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The names of all nodes that are no routers, in the order of their links."""
        return tuple(link.node for link in self.links if link.node not in self.routers)

    @cached_property
    def links_by_index(self) -> Mapping[int, Link]:
        """The links by their indices, which may have gaps."""
        return {link.index: link for link in self.links}

    @cached_property
    def _lengths(self) -> Mapping[Direction, int]:
        """The delay of each direction in nanoseconds."""
        delays = self.delays or [(link.uplink.delay, link.downlink.delay) for link in self.links]
        return {
            (link.index, up): round(delay * 1e9)
            for link, both in zip(self.links, delays, strict=True)
            for up, delay in zip((True, False), both, strict=True)
        }

    @cached_property
    def _of_device(self) -> Mapping[str, Link]:
        return {link.node: link for link in self.links if link.node not in self.routers}

    def link(self, device: str) -> Link:
        """Return a device's link.

        Raises:
            KeyError: there is no such device.
        """
        return self._of_device[device]

    def shape(self, direction: Direction) -> Shape:
        """Return the shape of one direction of a link."""
        index, up = direction
        link = self.links_by_index[index]
        return link.uplink if up else link.downlink

    def route(self, one: str, other: str) -> tuple[Direction, ...]:
        """Return the directions of links that a packet from one device to another takes."""
        first, last = self.link(one), self.link(other)
        if first is last:
            return ()
        between = self._ways(first.router)[last.router]
        return ((first.index, True), *between, (last.index, False))

    def path(self, one: str, other: str) -> tuple[str, ...]:
        """Return the names of the routers between two devices, on the way from the first."""
        names = []
        for index, up in self.route(one, other)[:-1]:
            link = self.links_by_index[index]
            names.append(link.router if up else link.node)
        return tuple(names)

    def delay(self, one: str, other: str) -> float:
        """Return the delay between two routers in seconds, of all links on the way together."""
        return sum(self.shape(direction).delay for direction in self._ways(one)[other])

    def next_links(self, router: str) -> Iterator[tuple[Link, Link]]:
        """Yield the link of each device that a router is not linked to, and the first on the way."""
        ways = self._ways(router)
        for device in self.devices:
            own = self.link(device)
            if own.router != router:
                yield own, self.links_by_index[ways[own.router][0][0]]

    @cached_property
    def _beside(self) -> Mapping[str, Sequence[tuple[str, Direction]]]:
        """The routers next to each router, and the direction of the link to them."""
        beside: dict[str, list[tuple[str, Direction]]] = {router: [] for router in self.routers}
        for link in self.links:
            if link.node in beside:
                beside[link.router].append((link.node, (link.index, False)))
                beside[link.node].append((link.router, (link.index, True)))
        return beside

    @cached_property
    def _computed(self) -> dict[str, Mapping[str, tuple[Direction, ...]]]:
        return {}

    def _ways(self, start: str) -> Mapping[str, tuple[Direction, ...]]:
        """Return the shortest path from a router to each router that it reaches."""
        if start not in self._computed:
            self._computed[start] = self._ways_from(start)
        return self._computed[start]

    def _ways_from(self, start: str) -> Mapping[str, tuple[Direction, ...]]:
        ways: dict[str, tuple[Direction, ...]] = {}
        nearest: list[tuple[_Length, str, tuple[Direction, ...]]] = [((0, 0, ()), start, ())]
        while nearest:
            (delay, count, indices), router, way = heapq.heappop(nearest)
            if router in ways:
                continue
            ways[router] = way
            for other, direction in self._beside[router]:
                if other not in ways:
                    longer = delay + self._lengths[direction]
                    length = longer, count + 1, (*indices, direction[0])
                    heapq.heappush(nearest, (length, other, (*way, direction)))
        return ways


def users(
    network: Network, conversations: Sequence[tuple[str, str]]
) -> dict[Direction, list[tuple[str, str]]]:
    """Return the directions that conversations use, with their senders and receivers.

    Args:
        conversations: the pairs of devices that talk to each other; both send.
    """
    found: dict[Direction, list[tuple[str, str]]] = {}
    for one, other in conversations:
        for sender, receiver in ((one, other), (other, one)):
            for direction in network.route(sender, receiver):
                found.setdefault(direction, []).append((sender, receiver))
    return found

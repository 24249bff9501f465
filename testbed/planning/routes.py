"""The routes of a run's conversations, and what limits each: those that are alike together."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.clock.flows import Flows
from testbed.device_names import is_server
from testbed.network.links import CORE, Link
from testbed.network.topology import Direction, Network
from testbed.planning.plan import Plan

MOST_PAIRS = 4_000
"""Conversations of peers of which the bottlenecks are computed."""


_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Share:
    """A worker's share of the network.

    Attributes:
        rate: bit/s; inf if nothing limits it.
        link: the link that limits it; None if nothing does.
        up: True if it does so from its node to its router.
    """

    rate: float
    link: Link | None
    up: bool = True


def shares_of(network: Network, pairs: Sequence[tuple[str, str]]) -> list[Share]:
    """Return the max-min fair share of each sender and receiver if all senders send at once."""
    routes = {number: network.route(*pair) for number, pair in enumerate(pairs)}
    directions = sorted({direction for route in routes.values() for direction in route})
    numbers = {direction: number for number, direction in enumerate(directions)}
    limits = [network.shape(direction).rate for direction in directions]
    rates = [math.inf if limit is None else float(limit) for limit in limits]
    flows = Flows(rates, range(len(rates)))
    started = {
        pair: flows.begin(0.0, [numbers[direction] for direction in route], 1.0)
        for pair, route in routes.items()
    }
    each = {pair: flows.rate(flow) for pair, flow in started.items()}
    load = dict.fromkeys(directions, 0.0)
    most = dict.fromkeys(directions, 0.0)
    for pair, route in routes.items():
        for direction in route:
            load[direction] += each[pair]
            most[direction] = max(most[direction], each[pair])
    return [_share(network, route, each[pair], load, most) for pair, route in routes.items()]


def _share(
    network: Network,
    route: Sequence[Direction],
    rate: float,
    load: Mapping[Direction, float],
    most: Mapping[Direction, float],
) -> Share:
    """Find the link that limits a sender: it is full, and no other has more of it."""
    for direction in route:
        limit = network.shape(direction).rate
        if limit is not None and (
            load[direction] >= limit * (1 - _ROUNDING) and rate >= most[direction] * (1 - _ROUNDING)
        ):
            return Share(rate, network.links_by_index[direction[0]], direction[1])
    return Share(rate, None)


@dataclass(frozen=True, slots=True)
class Side:
    """One direction of conversations that are alike.

    Attributes:
        rate: bit/s of each if all send at once; inf if nothing limits it, None if not computed.
        limit: the link that limits it, in words; empty if none does.
        delay: seconds, of all links on the way together.
    """

    rate: float | None
    limit: str
    delay: float

    def record(self) -> dict[str, float | str | None]:
        """Return it as JSON values; the rate is None if it has no limit, too."""
        rate = None if self.rate is None or math.isinf(self.rate) else self.rate
        return {"rate": rate, "limit": self.limit or None, "delay": self.delay}


@dataclass(frozen=True, slots=True)
class Routes:
    """Conversations that take the same way and have the same bottlenecks.

    Attributes:
        callers: the names of the devices that call.
        called: the name of the device that they call; of peers only ``peers``, of several servers
            ``servers``.
        path: the routers in between, from the caller on; without the machines of co-located servers.
        path_back: the routers on the way back; of several ways of one length it may be another.
        there, back: from the callers, and to them.
    """

    callers: Sequence[str]
    called: str
    path: Sequence[str]
    path_back: Sequence[str]
    there: Side
    back: Side


def has_all_links(plan: Plan) -> bool:
    """Return True unless a simulation has more devices than the address plan."""
    return len(plan.links) > len(plan.workers)


def routes(plan: Plan) -> list[Routes]:
    """Return the routes of all conversations, those of the most conversations first."""
    network = plan.asked_network
    there, back = _shares(plan, network)
    groups: dict[tuple[Any, ...], list[str]] = {}
    for number, (caller, called) in enumerate(plan.conversations):
        sides = tuple(
            Side(
                shares[number].rate if shares else None,
                _where(plan, network, shares[number], sender) if shares else "",
                sum(network.shape(one).delay for one in network.route(sender, receiver)),
            )
            for shares, sender, receiver in ((there, caller, called), (back, called, caller))
        )
        to = called if plan.served else "peers"
        if len(plan.servers) > 1 and is_server(called):
            to = "servers"
        paths = _path(plan, network, caller, called), _path(plan, network, called, caller)
        groups.setdefault((to, *paths, *sides), []).append(caller)
    if plan.served:  # with several servers each of them is called
        groups = {same: list(dict.fromkeys(callers)) for same, callers in groups.items()}
    found = [Routes(callers, *same) for same, callers in groups.items()]
    return sorted(found, key=lambda one: -len(one.callers))


def limiting(plan: Plan) -> Iterator[Direction]:
    """Yield the direction of a shared link that limits a conversation, once for each that it limits."""
    sides = _shares(plan, plan.asked_network)
    for pair, *both in zip(plan.conversations, *sides, strict=False):
        for share in both:
            if share.link is None:
                continue
            if share.link.node not in pair or is_server(share.link.node):
                yield share.link.index, share.up


def _shares(plan: Plan, network: Network) -> tuple[list[Share], list[Share]]:
    """Return the shares of all conversations from their callers and to them; none of too many."""
    pairs = plan.conversations
    turned = [(other, one) for one, other in pairs]
    if plan.served:
        # Workers push at one time and are sent parameters at another.
        return shares_of(network, pairs), shares_of(network, turned)
    if len(pairs) > MOST_PAIRS:
        return [], []
    both = shares_of(network, [*pairs, *turned])
    return both[: len(pairs)], both[len(pairs) :]


def _path(plan: Plan, network: Network, one: str, other: str) -> tuple[str, ...]:
    return tuple(router for router in network.path(one, other) if router not in plan.machines)


def _where(plan: Plan, network: Network, share: Share, sender: str) -> str:
    """Return the link that limits a share in words, the same for all devices that are alike."""
    link, way = share.link, "uplink" if share.up else "downlink"
    if link is None:
        return ""
    if link.node in plan.machines:
        # A machine's uplink is the sender's, and its downlink the receiver's.
        return f"the server's {way}" if is_server(sender) is share.up else f"own {way}"
    if is_server(link.node):
        return f"the server's {way}"
    if share.up and link.node == sender:
        return "own uplink"
    if link.node in network.devices:
        return "own downlink" if is_server(sender) else "the receiver's downlink"
    return f"{way} of {link.node}" if link.router == CORE else f"link {link.node} to {link.router}"

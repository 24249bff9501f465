"""The rate that each worker has if all of them send, or receive, at once, and what limits it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.clock.flows import Flows
from testbed.network.links import Link
from testbed.network.topology import Direction, Network

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
    """Return the max-min fair share of each pair if all senders send to their receivers at once.

    Args:
        network: with links as in the experiment file.
        pairs: the names of sender and receiver.
    """
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

"""The rate that each worker has if all of them send, or receive, at once, and what limits it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.clock.flows import Flows
from testbed.device_names import SERVER_NAME
from testbed.network.graph import Direction, Network
from testbed.network.links import Link

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Share:
    """A worker's share of the network.

    Attributes:
        rate: bit/s; inf if nothing limits it.
        link: the link that limits it; None if nothing does.
    """

    rate: float
    link: Link | None


def shares(network: Network, workers: Sequence[str], *, up: bool) -> dict[str, Share]:
    """Return each worker's max-min fair share if all send to the server at once, or receive from it.

    Args:
        network: with links as in the experiment file.
        up: True if workers send.
    """
    routes = {
        worker: network.route(worker, SERVER_NAME) if up else network.route(SERVER_NAME, worker)
        for worker in workers
    }
    directions = sorted({direction for route in routes.values() for direction in route})
    numbers = {direction: number for number, direction in enumerate(directions)}
    limits = [network.shape(direction).rate for direction in directions]
    rates = [math.inf if limit is None else float(limit) for limit in limits]
    flows = Flows(rates, range(len(rates)))
    started = {
        worker: flows.begin(0.0, [numbers[direction] for direction in route], 1.0)
        for worker, route in routes.items()
    }
    each = {worker: flows.rate(flow) for worker, flow in started.items()}
    load = dict.fromkeys(directions, 0.0)
    most = dict.fromkeys(directions, 0.0)
    for worker, route in routes.items():
        for direction in route:
            load[direction] += each[worker]
            most[direction] = max(most[direction], each[worker])
    return {worker: _share(network, routes[worker], each[worker], load, most) for worker in workers}


def _share(
    network: Network,
    route: Sequence[Direction],
    rate: float,
    load: Mapping[Direction, float],
    most: Mapping[Direction, float],
) -> Share:
    """Find the link that limits a worker: it is full, and nobody has more of it."""
    for direction in route:
        limit = network.shape(direction).rate
        if limit is not None and (
            load[direction] >= limit * (1 - _ROUNDING) and rate >= most[direction] * (1 - _ROUNDING)
        ):
            return Share(rate, network.links_by_index[direction[0]])
    return Share(rate, None)

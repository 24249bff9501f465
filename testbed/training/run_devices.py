"""The devices of a run and how they reach each other.

It is the part of a run's settings that a process reads which makes no half of an algorithm: it loads
neither the experiment file's sections nor a plug-in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

PORT = 7077
"""The port on which the server listens, in its own network namespace."""


@dataclass(frozen=True, slots=True)
class TimingSettings:
    """The clock, and the times that a run is judged by.

    Attributes:
        clock: wall: devices wait; virtual: time is computed.
        suspect_after: seconds of the run's clock after which a silent worker is suspected; None: never.
        gradient_time: mean of compute and waiting, in seconds; None where the host decides.
        own_processors: True if each device has a limit on its processors, so that devices need not take
            turns.
    """

    clock: Literal["wall", "virtual"]
    suspect_after: float | None
    gradient_time: float | None
    own_processors: bool


@dataclass(frozen=True, slots=True)
class Route:
    """The links that messages of a conversation pass, besides those of a worker's or of peers' own.

    Attributes:
        up, down: indices of ``NetworkSettings.shared_rates``: from the worker, or the first of two
            peers, and to it.
        up_delay, down_delay: seconds of all these links together, also of those without a rate.
        up_jitters, down_jitters: seconds by which each of them varies its delay, if it does.
    """

    up: Sequence[int]
    down: Sequence[int]
    up_delay: float
    down_delay: float
    up_jitters: Sequence[float] = ()
    down_jitters: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The addresses of a run's devices, and its secret.

    Attributes:
        server_addresses: IPv4 addresses of the servers in the order of their parts of the parameters,
            or of the evaluated peer.
        peer_addresses: the addresses of all peers by their numbers; none where there is a server.
        evaluated_peer: the peer whose model is evaluated, where there is no server.
        secret: the run's secret, hexadecimal; a greeting without it is refused.
        shared_rates: the rates of directions of links that several devices share, in bit/s.
        routes: the ways over them, of which each conversation takes one.
        route_of: each conversation's way, by the numbers of ``testbed.clock.conversations``. Empty
            where no links are shared.
        flow_routes: the indices of ``shared_rates`` that each flow of background traffic passes, where
            they are computed; empty where no links are shared.
        co_located: the number of workers, the first ones, with a server on their machine. The routes
            of their conversations contain the link of their machine, and they have none of their own.
        aggregator_of: the aggregator, from 0, of each worker and then of each aggregator; -1: it talks
            to the servers. Empty where workers talk to servers.
    """

    server_addresses: Sequence[str]
    peer_addresses: Sequence[str]
    evaluated_peer: int
    secret: str
    shared_rates: Sequence[int] = field(default_factory=list)
    routes: Sequence[Route] = field(default_factory=list)
    route_of: Sequence[int] = field(default_factory=list)
    flow_routes: Sequence[Sequence[int]] = field(default_factory=list)
    co_located: int = 0
    aggregator_of: Sequence[int] = field(default_factory=list)
    aggregator_addresses: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunDevices:
    """The devices of a run, how they are reached, and its clock.

    Attributes:
        workers: the number of workers or peers, numbered from 0.
    """

    workers: int
    timing: TimingSettings
    network: NetworkSettings

    @property
    def aggregators(self) -> int:
        return len(self.network.aggregator_addresses)

    @property
    def serving(self) -> int:
        """The number of roles that serve: the servers and, after them, the aggregators."""
        return self.servers + self.aggregators

    def address(self, index: int) -> str:
        """Return the IPv4 address of a role that serves, by its index."""
        return [*self.network.server_addresses, *self.network.aggregator_addresses][index]

    def called(self, worker: int) -> Sequence[int]:
        """Return the indices of the roles that a worker or an aggregator calls, in order.

        They are an aggregator, or all servers.
        """
        of = self.network.aggregator_of
        above = of[worker] if of else -1
        return range(self.servers) if above < 0 else [self.servers + above]

    def calls_aggregator(self, worker: int) -> bool:
        """Return True if a worker, or an aggregator as one, calls an aggregator, and no server."""
        return self.called(worker)[0] >= self.servers

    def as_worker(self, aggregator: int) -> int:
        """Return an aggregator's number as a worker, by its index as a role that serves."""
        return self.workers + aggregator - self.servers

    def above(self, device: int) -> Sequence[int]:
        """Return the numbers, as workers, of the aggregators above a device, the nearest first."""
        found: list[int] = []
        while self.calls_aggregator(device):
            device = self.as_worker(self.called(device)[0])
            found.append(device)
        return found

    def levels_below(self, index: int) -> Mapping[int, int]:
        """Return how many levels of devices are below each aggregator that a role serves."""
        callers = [caller for caller in self.callers(index) if caller >= self.workers]
        below = {caller: self.levels_below(self.serving_index(caller)) for caller in callers}
        return {caller: 1 + max(levels.values(), default=0) for caller, levels in below.items()}

    def serving_index(self, aggregator: int) -> int:
        """Return an aggregator's index as a role that serves, by its number as a worker."""
        return self.servers + aggregator - self.workers

    @property
    def evaluator(self) -> int:
        """The evaluator's number, after those of the workers and of the aggregators."""
        return self.workers + self.aggregators

    def callers(self, index: int) -> Sequence[int]:
        """Return the numbers of the devices that push to a role that serves, by its index."""
        of = self.network.aggregator_of
        if not of:
            return range(self.workers)
        return [caller for caller in range(len(of)) if index in self.called(caller)]

    @property
    def servers(self) -> int:
        """The number of parameter servers; 1 if there are only peers, of which one is evaluated."""
        return len(self.network.server_addresses)

    def route(self, conversation: int) -> Route | None:
        """Return the links that a conversation passes besides devices' own; None if none are shared."""
        network = self.network
        return network.routes[network.route_of[conversation]] if network.route_of else None

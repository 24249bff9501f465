"""The conversations of a run: which worker talks to which server, or which peers to each other.

Conversations are numbered, and events are about one of them. Those of the first worker come first, in
the order of the roles that it talks to; with one server the number of a conversation is its worker's.
A *way* is one direction of a conversation.

An aggregator is a server to the workers of its cluster, and a worker to the servers or to the
aggregator above it. As a server it has an index, as a worker a number; both follow those of the others.
"""

import itertools
from collections.abc import Sequence
from typing import Self, TypeAlias

from testbed.training.settings import Settings

Way: TypeAlias = tuple[int, bool]
"""The number of a conversation, and True if its first end sends: the worker, or the first peer."""


class Conversations:
    """The conversations of workers, and of aggregators as workers, with the roles that they call."""

    def __init__(
        self, called: Sequence[Sequence[int]], *, workers: int | None = None, servers: int = 1
    ) -> None:
        """Number the conversations.

        Args:
            called: the indices of the roles that each worker, and then each aggregator, talks to.
            workers: how many of them are workers; None: all.
            servers: their number; the indices of aggregators begin with it.
        """
        self._workers = len(called) if workers is None else workers
        self._servers = servers
        self._worker = [worker for worker, those in enumerate(called) for _ in those]
        self._server = [server for those in called for server in those]
        ends = itertools.accumulate(map(len, called), initial=0)
        self._of_worker = [range(*both) for both in itertools.pairwise(ends)]
        pairs = zip(self._worker, self._server, strict=True)
        self._between = {pair: number for number, pair in enumerate(pairs)}

    @classmethod
    def with_all(cls, workers: int, servers: int = 1) -> Self:
        """Number the conversations of workers that talk to all servers."""
        return cls([range(servers)] * workers, servers=servers)

    def of_worker(self, worker: int) -> range:
        """Return the numbers of a worker's conversations, in the order of its servers."""
        return self._of_worker[worker]

    def of_server(self, server: int) -> list[int]:
        """Return the numbers of a server's, or an aggregator's, conversations with its callers."""
        return [number for number, one in enumerate(self._server) if one == server]

    def ways(self, device: int, *, up: bool) -> list[Way]:
        """Return the ways on which a worker sends, or receives, in the order of their numbers."""
        return [(number, up) for number in self.of_worker(device)]

    def over_link(self, device: int, *, up: bool) -> list[Way]:
        """Return the ways over one direction of the link of a device's machine, in order.

        What an aggregator answers leaves over its uplink, and what it is pushed comes over its
        downlink.
        """
        own, below = self.ways(device, up=up), self.below(device)
        if below is None:
            return own
        return sorted([*own, *((number, not up) for number in self.of_server(below))])

    def worker(self, conversation: int) -> int:
        return self._worker[conversation]

    def server(self, conversation: int) -> int:
        return self._server[conversation]

    def place(self, conversation: int) -> int:
        """Return the place of a conversation among those of its worker, from 0."""
        return conversation - self._of_worker[self._worker[conversation]].start

    def between(self, worker: int, server: int) -> int:
        """Return the number of the conversation of a worker with a server that it talks to."""
        return self._between[worker, server]

    def below(self, worker: int) -> int | None:
        """Return the index as a server of what talks as this worker; None if it is none."""
        index = worker - self._workers
        return self._servers + index if index >= 0 else None

    def above(self, server: int) -> int | None:
        """Return the number as a worker of what serves at this index; None if it is none."""
        index = server - self._servers
        return self._workers + index if index >= 0 else None


class Machines(Conversations):
    """Workers of which the first have a server on their machine: server i is beside worker i.

    The two share the machine's link: what others send the server comes over the downlink, as do the
    parameters of other servers. What they send each other crosses no link.
    """

    def over_link(self, device: int, *, up: bool) -> list[Way]:
        if device >= self._servers:
            return super().over_link(device, up=up)
        own = [way for way in self.ways(device, up=up) if self.server(way[0]) != device]
        others = (worker for worker in range(self._workers) if worker != device)
        return sorted([*own, *((self.between(worker, device), not up) for worker in others)])


class PeerConversations:
    """The conversations of peers, in which both ends send.

    Of two peers the one with the lower number is the first. Conversations are numbered in the order of
    their ends: those of peer 0 come first.
    """

    def __init__(self, neighbours: Sequence[Sequence[int]]) -> None:
        pairs = [(p, other) for p, others in enumerate(neighbours) for other in others if p < other]
        self._pairs = pairs
        self._ways: dict[tuple[int, int], Way] = {}
        for number, (one, other) in enumerate(pairs):
            self._ways[one, other] = number, True
            self._ways[other, one] = number, False
        self._neighbours = neighbours

    def neighbours(self, peer: int) -> Sequence[int]:
        return self._neighbours[peer]

    def way(self, sender: int, receiver: int) -> Way:
        """Return the way from one peer to another that it talks to."""
        return self._ways[sender, receiver]

    def ends(self, way: Way) -> tuple[int, int]:
        number, up = way
        one, other = self._pairs[number]
        return (one, other) if up else (other, one)

    def ways(self, device: int, *, up: bool) -> list[Way]:
        """Return the ways over one direction of a peer's own link, in the order of their numbers."""
        others = self._neighbours[device]
        return [self._ways[(device, one) if up else (one, device)] for one in others]

    def over_link(self, device: int, *, up: bool) -> list[Way]:
        """Return what ``ways`` does: a peer's machine has no other device."""
        return self.ways(device, up=up)


def conversations(settings: Settings) -> Conversations:
    called = [settings.called(worker) for worker in range(settings.evaluator)]
    numbered = Machines if settings.network.co_located else Conversations
    return numbered(called, workers=settings.workers, servers=settings.servers)

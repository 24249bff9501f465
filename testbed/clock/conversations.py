"""The conversations of a run: which worker talks to which server, or which peers to each other.

Conversations are numbered, and events are about one of them. With one server the number of a
conversation is its worker's. A *way* is one direction of a conversation.

An aggregator is a server to the workers of its cluster, and a worker to the server or aggregator above
it. As a server it has an index, as a worker a number; both follow those of the others.
"""

from collections.abc import Sequence
from typing import TypeAlias

from testbed.training.settings import Settings

Way: TypeAlias = tuple[int, bool]
"""The number of a conversation, and True if its first end sends: the worker, or the first peer."""


class Conversations:
    """The conversations of workers that talk to the same number of servers, all of them.

    Attributes:
        servers: the number of servers that each worker talks to.
    """

    def __init__(self, servers: int = 1) -> None:
        self.servers = servers

    def of_worker(self, worker: int) -> range:
        """Return the numbers of a worker's conversations, in the order of its servers."""
        return range(worker * self.servers, (worker + 1) * self.servers)

    def ways(self, device: int, *, up: bool) -> list[Way]:
        """Return the ways over one direction of a device's own link, in the order of their numbers."""
        return [(number, up) for number in self.of_worker(device)]

    def worker(self, conversation: int) -> int:
        return conversation // self.servers

    def server(self, conversation: int) -> int:
        return conversation % self.servers

    def place(self, conversation: int) -> int:
        """Return the place of a conversation among those of its worker, from 0."""
        return conversation % self.servers

    def between(self, worker: int, server: int) -> int:
        """Return the number of the conversation of a worker with a server that it talks to."""
        return worker * self.servers + server

    def below(self, worker: int) -> int | None:
        """Return the index as a server of what talks as this worker; None if it is none."""
        return None

    def above(self, server: int) -> int | None:
        """Return the number as a worker of what serves at this index; None if it is none."""
        return None


class Tree(Conversations):
    """Workers that talk to aggregators, and aggregators that talk to others or to the server.

    The server has index 0 and aggregator a index 1 + a. With n workers, which are numbered from 0,
    aggregator a is worker n + a of what it talks to. A conversation has its worker's number.
    """

    def __init__(self, aggregator_of: Sequence[int], workers: int) -> None:
        """Number the conversations.

        Args:
            aggregator_of: the aggregator, from 0, of each worker and then of each aggregator; -1: it
                talks to the server.
        """
        super().__init__()
        self._aggregator_of = aggregator_of
        self._workers = workers

    def server(self, conversation: int) -> int:
        return 1 + self._aggregator_of[conversation]

    def between(self, worker: int, server: int) -> int:
        return worker

    def below(self, worker: int) -> int | None:
        index = worker - self._workers
        return 1 + index if index >= 0 else None

    def above(self, server: int) -> int | None:
        return self._workers + server - 1 if server else None


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


def conversations(settings: Settings) -> Conversations:
    if settings.aggregators:
        return Tree(settings.network.aggregator_of, settings.workers)
    return Conversations(settings.servers)

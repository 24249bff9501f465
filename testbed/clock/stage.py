"""The stage: the interface between the virtual clock and the devices around parameter servers.

Conversations are numbered as in ``testbed.clock.conversations``: with one server, as the workers.
The clock knows when things happen, a stage makes them happen. One stage has real devices, which it
reaches over connections, and another has simulated ones.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.algorithms.aggregator_half import Combined
from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.messages.fault_changes import FaultChange
from testbed.training.parameter_service import Pushed
from testbed.training.service_entries import Entry


@dataclass(slots=True)
class Arrived:
    """A worker's push, and the messages that arrive together with it.

    Attributes:
        push: what the server takes in; None if the worker only asks for parameters.
        sizes: bytes of each message, the push's first; the others ask for parameters.
    """

    push: Pushed | None
    sizes: Sequence[int]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def payload_bytes(self) -> int:
        return 0 if self.push is None else self.push.payload_bytes


class ServerKilledError(Exception):
    """A server is killed, in the middle of an event: the clock can no longer be used.

    Attributes:
        number: the number of the kill among all kills of servers in the run, from 1.
    """

    def __init__(self, server: int, number: int, begin: FaultChange) -> None:
        super().__init__(f"server {server} is killed")
        self.server, self.number, self.begin = server, number, begin


class Stage(Protocol):
    """The devices: a stage carries out what the clock decides."""

    def answer(self, conversation: int) -> int:
        """Send a worker the parameters that it is due; return the message's bytes."""

    def arrived(self, conversation: int, version: int) -> None:
        """Deliver the parameters of ``version`` to the worker."""

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        """Make the worker begin to compute at parameters that have arrived."""

    def finish(self, worker: int, reports: Collection[int]) -> None:
        """Make the worker send what it has computed to its servers, or only report that it is over.

        It sends every server its part, or asks, or does both, as its leg says; ``reports`` are the
        places of the servers that get only a report.
        """

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        """Return the next message of a worker that has finished, or None if the worker is gone.

        Args:
            keep: True if other messages may be received before this one is used.
        """

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began."""

    def record(self, server: int, entries: Sequence[Entry]) -> None:
        """Record what a server's, or an aggregator's, service has returned."""

    def refuse(self, conversation: int, error: UnexpectedMessageError) -> None:
        """Handle a worker that sent an invalid message, and is no part of the run any more."""

    # -- aggregators, by their numbers as workers

    def adopt(self, worker: int, versions: Sequence[int], time: float) -> None:
        """Make an aggregator's service take over parameters that have arrived.

        Args:
            versions: by the roles that the aggregator calls, as in ``compute``.
            time: now, in virtual seconds since training began.
        """

    def push(self, worker: int, combined: Combined | None) -> None:
        """Send each role that it calls its part of what an aggregator has combined, and a question.

        With None it sends each only a report.
        """

    def ask(self, conversation: int) -> int:
        """Send the question of an aggregator that rested, for parameters; return its bytes."""

    # -- faults

    def fault(self, record: FaultChange) -> None:
        """Make the beginning or the end of a fault real, and write its record down."""

    def server_killed(self, server: int, number: int, begin: FaultChange, end: FaultChange) -> None:
        """Kill a server; the run goes on from its last checkpoint, or without one from the beginning.

        A checkpoint of the virtual clock is one of the whole run, taken between two events: the clock's
        ``state()`` (with its conditions, strikes, transfers and aggregators), and the state of every
        server's and aggregator's service and half, and of every device. All of it goes back, whichever
        server is killed. What happened after the checkpoint then happens once more, the same to the
        bit, and so does this call. Nothing on record is taken back, and bytes count once, as if the
        server had never been killed.

        Args:
            number: the number of this kill among all kills of servers in the run, from 1. One that the
                run has come back from keeps its number; it only has its two records written.
        """

    def lose(self, worker: int) -> None:
        """Drop what a worker was computing or had to send."""

    def killed(self, worker: int) -> None:
        """Drop what a killed worker had, and its connections."""

    def returned(self, worker: int, incarnation: int) -> Sequence[int] | None:
        """Restart a killed worker, which greets and asks every server that it talks to.

        Returns:
            The bytes of each message to one server; None if it does not come.
        """

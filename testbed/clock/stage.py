"""Where the devices around a parameter server are: what the virtual clock says is done there.

The clock knows when; a stage knows how. There is one of real devices, which are told over their
connections, and one of simulated ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.training.parameter_service import Pushed


@dataclass(slots=True)
class Arrived:
    """A worker's message and what comes behind it in one go.

    Attributes:
        push: what the server takes in.
        sizes: bytes of each message, the push's first.
    """

    push: Pushed
    sizes: Sequence[int]

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(self.sizes)


class Stage(Protocol):
    """Where the devices are: what the clock says is done here."""

    def answer(self, worker: int) -> int:
        """Send a worker that is due its parameters; returns the message's bytes."""

    def arrived(self, worker: int, version: int) -> None:
        """Parameters that it was sent have arrived at the worker."""

    def compute(self, worker: int, version: int) -> None:
        """The worker begins to compute at parameters that have arrived."""

    def finish(self, worker: int, late: bool) -> None:
        """The worker sends what it has computed; if late, only a report that it has finished."""

    def receive(self, worker: int, keep: bool) -> Arrived | None:
        """The next message of a worker that has finished; None if the worker is gone.

        Args:
            keep: whether other messages may be received before this one is used.
        """

    def host_time(self) -> float:
        """Seconds of the host's clock since training began."""

    def refuse(self, worker: int, error: ValueError) -> None:
        """The worker sent what it may not, and is no part of the run any more."""


class FaultStage(Stage, Protocol):
    """A stage on which something may go wrong."""

    def fault(self, record: dict[str, Any]) -> None:
        """A fault begins or ends: it is to be made real, and written down."""

    def server_killed(self, number: int, begin: dict[str, Any], end: dict[str, Any]) -> None:
        """The server is killed, and comes back from its last checkpoint.

        What it has done behind that comes about once more, and so does this.

        Args:
            number: of this time, from 1; of a time that it has come back from already, the same.
            begin, end: the records of both.
        """

    def lose(self, worker: int) -> None:
        """Whatever a worker was computing or had to send is lost."""

    def killed(self, worker: int) -> None:
        """A worker's connection has ended; what it had is lost."""

    def returned(self, worker: int, incarnation: int) -> Sequence[int] | None:
        """A killed worker greets, and asks; bytes of each message, None if it does not come."""

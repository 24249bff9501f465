"""The interfaces between the clock among peers, the peers, and the faults of a run."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from testbed.training.entries import Entry
from testbed.training.exchange import Message, Step


class MeshStage(Protocol):
    """The peers: a stage carries out what the clock decides."""

    def begin(self, peer: int) -> None:
        """Make the peer begin to compute at its model as it is now."""

    def finish(self, peer: int) -> Step | None:
        """Make the peer take its step and send; return the step, or None if the peer is gone."""

    def arrive(self, receiver: int, sender: int) -> Sequence[Message]:
        """Deliver the sender's next message to the receiver; return what the receiver sends."""

    def ready(self, peer: int) -> bool:
        """Return True if the peer may compute its next gradient."""

    def waits_for(self, peer: int) -> Sequence[int]:
        """Return the peers that a peer waits for, if it is not ready."""

    def suspect(self, peer: int, other: int) -> None:
        """Let a peer wait for another one, which is silent, no longer until it hears of it."""

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began."""

    def record(self, entries: Sequence[Entry]) -> None:
        """Record what the service has returned."""


class MeshFaultStage(MeshStage, Protocol):
    """Peers that faults may strike."""

    def kill(self, peer: int) -> None:
        """Let a peer die: the others forget it, and what it has under way to them is lost."""

    def come_back(self, peer: int, others: Sequence[int], record: dict[str, Any]) -> bool:
        """Make the end of a kill real, and write its record down: a new process takes the peer's place.

        Args:
            others: the peers that it talks to from now on, which take it in.

        Returns:
            False if it does not come.
        """

    def stop(self, peers: Sequence[int]) -> None:
        """Have all that peers sent, by the clock, reach the others: they are frozen or cut off now."""

    def freeze(self, peer: int) -> None:
        """Note that a peer is frozen: it carries out nothing that it is told before its thaw."""

    def thaw(self, peer: int) -> None:
        """Note that a peer is not frozen any more."""

    def fault(self, record: dict[str, Any]) -> None:
        """Make the beginning or the end of a fault real, and write its record down."""


class Conditions(Protocol):
    """What faults have done to peers."""

    def delays(self, time: float, rank: int, peer: int, sender: int) -> bool:
        """Return True if an event does not take place now; it may have been put off."""

    def factor(self, peer: int) -> float:
        """Return the factor by which a peer's durations are multiplied."""

    def begins(self, peer: int) -> None:
        """Note that a peer begins a computation."""

    def is_cut_off(self, peer: int) -> bool:
        """Return True if a peer's link is down."""

    def freed(self, peer: int) -> None:
        """Note that a peer's link may be up again."""

    def thaw_due(self) -> None:
        """Let the peers go on whose freeze has ended."""

    def unreachable(self) -> Iterator[int]:
        """Yield the peers that are frozen, cut off or lost now."""


class Strikes(Protocol):
    """The faults of a run of peers."""

    def begin(self) -> None:
        """Add the first fault to the events."""

    def strike(self, number: int) -> None:
        """Let the fault of an event begin or end."""

    def come_back(self, peer: int) -> None:
        """Let a killed peer come back, or put that off."""

    def stepped(self) -> None:
        """Let faults strike that are due at the number of updates that was reached."""

"""Events, which a role is told, and actions, which it returns.

A conversation is a caller and the role that it calls, in the plan's numbers. Actions name computations
and versions, never bytes: a gradient is valid only in its turn, so that the driver makes the message.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Job:
    """A computation.

    Attributes:
        number: the number of computations that this incarnation has begun, from 1.
        bases: the versions that it begins at, by conversation.
        leg: the place of its leg among those of the worker's half.
    """

    number: int
    bases: tuple[int, ...]
    leg: int = 0


# -- events


@dataclass(frozen=True, slots=True)
class Opened:
    """A conversation's greeting is answered; ``session`` counts those after the first, from 0."""

    conversation: int
    session: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """Parameters of a version have arrived, or can be received when they are computed at."""

    conversation: int
    version: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The called side's updates are complete, or it has left for good."""

    conversation: int


@dataclass(frozen=True, slots=True)
class Computed:
    """A computation, and the waiting after it, are over."""

    job: Job


@dataclass(frozen=True, slots=True)
class Lost:
    """The parameters that a job was to begin at are lost with their connection."""

    job: Job


Event: TypeAlias = Opened | Received | Stopped | Computed | Lost

# -- messages and actions


@dataclass(frozen=True, slots=True)
class Pull:
    """Ask for the newest parameters."""


@dataclass(frozen=True, slots=True)
class Push:
    """Push what a job has computed, at the base of the conversation."""

    job: Job


@dataclass(frozen=True, slots=True)
class Report:
    """Report that a computation at ``version`` is over, without its update."""

    version: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message over a conversation."""

    conversation: int
    message: Pull | Push | Report


@dataclass(frozen=True, slots=True)
class Compute:
    """Begin a job; its time begins now. An earlier one that is not over is dropped."""

    job: Job


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing more comes of this role."""


Action: TypeAlias = Send | Compute | Over


class Role(Protocol):
    """A role: it knows no socket, no clock and no process."""

    def handle(self, event: Event) -> Iterator[Action]:
        """Yield the actions that follow an event; carry out each before the next is taken."""

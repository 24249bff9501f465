"""Events, which a role is told, and actions, which it returns.

A conversation is a caller and the role that it calls, in the plan's numbers. Actions name computations
and versions, never bytes: a gradient is valid only in its turn, so that the driver makes the message.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from testbed.algorithms.aggregator_half import Combined
from testbed.training.exchange import Told
from testbed.training.parameter_service import Pushed
from testbed.training.service_entries import Entry


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


class What(Enum):
    """The moments of which a role may ask to be told."""

    GATHERED = auto()
    """Those that are to greet before training begins have had their time."""
    BACK = auto()
    """Those that were there before this role was restored have had their time."""
    RETURNED = auto()
    """Those that were killed have had their time to come back."""
    SILENT = auto()
    """A caller may have been silent for too long."""
    EXPIRED = auto()
    """The time limit of the half may be over."""
    ASKED = auto()
    """Whatever else comes at the moment at which a caller has asked has come."""
    RESTED = auto()
    """The server has an aggregator's report that it has no devices."""
    BEGIN = auto()
    """A peer may begin to compute."""


class Token(NamedTuple):
    """The name of a moment that a role has asked to be told of.

    Attributes:
        number: tells apart moments of which only the last one counts.
    """

    what: What
    conversation: int = -1
    number: int = 0


# -- events


@dataclass(frozen=True, slots=True)
class Opened:
    """A conversation's greeting is answered.

    Attributes:
        session: counts the greetings of the called side after the first, from 0.
        size: bytes of the greeting, as the called side counts them.
    """

    conversation: int
    session: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Coming:
    """Parameters were sent, and are on their way; only the virtual clock knows that."""

    conversation: int


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
    """A job ends without a result: the parameters that it was to begin at are lost, for one."""

    job: Job


@dataclass(frozen=True, slots=True)
class Heard:
    """A caller's message of ``size`` bytes has arrived at a role that serves.

    Attributes:
        more: True if another one has come with it, which is told next.
        host_time: when, in seconds since training began by the host's clock; None: the run's clock is
            the host's.
    """

    conversation: int
    message: "Pull | Pushed"
    size: int
    more: bool = False
    host_time: float | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """A caller is gone."""

    conversation: int


@dataclass(frozen=True, slots=True)
class Settled:
    """All events of this moment were told: a role that serves answers those that are due.

    Attributes:
        room: returns True if what a caller was sent before has left.
    """

    room: Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Due:
    """The moment of a token has come.

    Attributes:
        time: the moment that was asked for.
    """

    token: Token
    time: float = math.nan


@dataclass(frozen=True, slots=True)
class Began:
    """All conversations that are there before training are open: it begins, or goes on."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A role has the state of a checkpoint, at which callers were there that are to come back."""

    there: Collection[int]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Callers never come back: they were killed for good, or their host is lost."""

    callers: Collection[int]


@dataclass(frozen=True, slots=True)
class End:
    """Training is over, whatever is still missing."""


@dataclass(frozen=True, slots=True)
class UpdateArrived:
    """The next update of another peer has arrived."""

    conversation: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A peer that was sent more than it takes has taken some of it; only the wall clock tells that."""

    conversation: int


ToCaller: TypeAlias = Opened | Coming | Received | Stopped | Computed | Lost
ToServed: TypeAlias = Opened | Heard | Closed | Settled | Due | Began | Restored | GivenUp | End
Event: TypeAlias = ToCaller | ToServed
ToPeer: TypeAlias = Began | Opened | UpdateArrived | Taken | Computed | Closed | Due | End

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
class Parameters:
    """Answer with the parameters as they are when this is carried out, before the next action."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Push an aggregator's sum at once: the role's next event may overwrite it."""

    combined: Combined


@dataclass(frozen=True, slots=True)
class Stop:
    """Say that training is over."""


Message: TypeAlias = Pull | Push | Report | Parameters | Sum | Stop


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message over a conversation."""

    conversation: int
    message: Message


@dataclass(frozen=True, slots=True)
class Compute:
    """Start a job; its time begins now. An earlier one that is not over is dropped."""

    job: Job


@dataclass(frozen=True, slots=True)
class At:
    """Tell the role that a token is due, at a time or as soon as possible after it.

    It is no duration: ``now + (time - now)`` need not be ``time`` in floats, and times are results.

    Attributes:
        time: in seconds since training began, by the run's clock; 0 before that.
    """

    time: float
    token: Token


@dataclass(frozen=True, slots=True)
class WhenLeft:
    """Tell the role that a token is due once what it has sent so far has left it.

    Of an aggregator that is its report to its server; of a peer the messages of its steps.
    """

    token: Token


@dataclass(frozen=True, slots=True)
class Record:
    """Write an entry down."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing more comes of this role; one that serves says ``Stop`` to all callers, now and later."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the service of the run what a peer has done; it counts and records it."""

    what: Told


Action: TypeAlias = Send | Compute | At | WhenLeft | Record | Over

OfPeer: TypeAlias = Compute | At | WhenLeft | Tell | Over

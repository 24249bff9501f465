"""Between the virtual clock and servers: what to do, and what came of it.

The clock's process decides, and the servers have the parameters, the connections and the messages. It
makes one request at a time of a server and waits for its ``Outcome``; an only server is in its process.
A worker that is named is given by its number; times are seconds of the run's clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, get_args

from testbed.messages.codec import MessageCodec

T = TypeVar("T")


class Request(Generic[T]):
    """A request whose outcome has a value of this type."""

    __slots__ = ()

    def read(self, outcome: "Outcome") -> T:
        """Return what came of it; the outcome may have passed a channel."""
        found: T = outcome.value
        return found


class WorkerMessage(NamedTuple):
    """A message of a worker, as its server has read it.

    Attributes:
        sizes: bytes of each frame, the push's first; the others ask for parameters.
        base_version: of the push, or of the report; None if the worker only asks.
        update: the number of its update, which the server has; None if there is none that counts.
        payload_bytes, loss: of the push.
        summed: the number of updates in the sum of an aggregator; 0: it is none.
    """

    sizes: Sequence[int]
    base_version: int | None = None
    update: int | None = None
    payload_bytes: int = 0
    loss: float = math.nan
    summed: int = 0


@dataclass(frozen=True, slots=True)
class Gather(Request[Sequence[tuple[int, Sequence[int]]]]):
    """Wait until all workers are connected, and have asked if that is the protocol.

    The value is each worker that is there, with the bytes of its messages.
    """


@dataclass(frozen=True, slots=True)
class TakePull(Request[bool]):
    """Take a worker's pull; the value is False if it may not have them yet."""

    worker: int
    time: float


@dataclass(frozen=True, slots=True)
class Answer(Request[int]):
    """Send a worker parameters; the value is the message's bytes.

    Attributes:
        sent: the version that it was sent last; None if it was sent none.
        needed: the versions that it has and still needs, where there are checkpoints; None if it can
            send nothing more.
        dealt: the number of its mini-batch in the run's stream of them, if there is one.
    """

    worker: int
    sent: int | None
    needed: Sequence[int] | None = None
    dealt: int = 0


@dataclass(frozen=True, slots=True)
class Receive(Request["WorkerMessage | None"]):
    """Read a worker's next message; the value is None if the worker is gone.

    Attributes:
        keep: True if others' messages may be read before this one is used.
    """

    worker: int
    keep: bool = True

    def read(self, outcome: "Outcome") -> WorkerMessage | None:
        return None if outcome.value is None else WorkerMessage(*outcome.value)


@dataclass(frozen=True, slots=True)
class Apply(Request[int | None]):
    """Apply an update that was received of a worker; the value is its delay, None: too late.

    Attributes:
        update: its number, as ``Receive`` returned it.
        count: of an aggregator's sum, the number of updates in it; 0 of any other update.
    """

    worker: int
    update: int
    base_version: int
    loss: float
    time: float
    count: int = 0


@dataclass(frozen=True, slots=True)
class Reported(Request[None]):
    """Report that a worker has finished a gradient and did not send it."""

    worker: int
    base_version: int
    time: float


@dataclass(frozen=True, slots=True)
class Join(Request[None]):
    """Add a worker that takes part."""

    worker: int


@dataclass(frozen=True, slots=True)
class Forget(Request[None]):
    """Drop all that is kept for a worker."""

    worker: int


@dataclass(frozen=True, slots=True)
class Diagnose(Request[Mapping[str, float]]):
    """The value is the algorithm's diagnostics, by name."""


@dataclass(frozen=True, slots=True)
class Adopt(Request[None]):
    """Have an aggregator serve what the roles above it sent.

    Attributes:
        versions: by these roles, in the order in which it calls them.
    """

    versions: Sequence[int]
    time: float


@dataclass(frozen=True, slots=True)
class Expire(Request[None]):
    """End the half's time limit."""


@dataclass(frozen=True, slots=True)
class Combine(Request[bool]):
    """Push what an aggregator has combined, and ask for the next parameters.

    If that is nothing, it only reports so, and does not ask.
    """


@dataclass(frozen=True, slots=True)
class Ask(Request[int]):
    """Have an aggregator that had no devices ask for parameters; the value is the message's bytes.

    Attributes:
        place: of the role that it asks, among those that it calls.
    """

    place: int


@dataclass(frozen=True, slots=True)
class Hear(Request[None]):
    """Read an aggregator's question, which comes without a push."""

    worker: int


@dataclass(frozen=True, slots=True)
class Evaluate(Request[bool]):
    """Have the present version evaluated; the value is True if too many evaluations wait already.

    Attributes:
        ledger: of what reached this server, as in ``ParameterService``.
    """

    time: float
    ledger: Sequence[int]
    last: bool


@dataclass(frozen=True, slots=True)
class LookAtEvaluator(Request[bool]):
    """The value is True if too many evaluations wait."""


@dataclass(frozen=True, slots=True)
class Killed(Request[None]):
    """Ignore from now on what a killed worker has sent."""

    worker: int


@dataclass(frozen=True, slots=True)
class Return(Request[Sequence[int] | None]):
    """Wait until a killed worker has greeted, and asked; the value are its messages' bytes, or None."""

    worker: int


@dataclass(frozen=True, slots=True)
class Refuse(Request[None]):
    """Close the connection of a worker that sent what it must not."""

    worker: int
    reason: str


class Saved(NamedTuple):
    """The state of a server or aggregator.

    Attributes:
        there: the workers that are connected.
    """

    there: Sequence[int]
    raw: bytes


@dataclass(frozen=True, slots=True)
class Save(Request[Saved]):
    """Return the state.

    Attributes:
        needed: the workers, each with the versions that it has and still needs; None: see ``Answer``.
        unread: of an aggregator, how many of its last messages each role that it calls has not read;
            empty: none.
    """

    needed: Sequence[tuple[int, Sequence[int] | None]]
    unread: Sequence[int]

    def read(self, outcome: "Outcome") -> Saved:
        return Saved(outcome.value, outcome.raw)


@dataclass(frozen=True, slots=True)
class Restore(Request[None]):
    """Become as in a state, and listen for the workers that were there."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class GoBack(Request[None]):
    """End all connections, begin anew, and wait for ``Restore``: another server is to be killed."""

    kills: int


@dataclass(frozen=True, slots=True)
class AwaitKill(Request[None]):
    """Do nothing any more: this server is to be killed."""


@dataclass(frozen=True, slots=True)
class StopWorkers(Request[None]):
    """Send all workers STOP: this server's updates are complete."""


@dataclass(frozen=True, slots=True)
class EndTraining(Request[None]):
    """Training is over: send STOP, wait for the ends of the connections, and report.

    Attributes:
        ledger: of what reached this server, as in ``ParameterService``.
        unreachable: workers of which no end will come.
    """

    ledger: Sequence[int]
    unreachable: Sequence[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request.

    Attributes:
        value: as the request says; one that has passed a channel is of JSON.
        version: of the server's parameters, after the request.
        deadline: the half's, after the request.
        error: why the worker's message is invalid; None if it is valid.
        is_due: True if an aggregator's combination has closed and is still to be pushed.
        raw: of a ``Saved``.
    """

    value: Any
    version: int
    error: str | None = None
    is_due: bool = False
    deadline: float | None = None
    raw: bytes = b""


AnyRequest: TypeAlias = (
    Gather
    | TakePull
    | Answer
    | Receive
    | Apply
    | Reported
    | Join
    | Forget
    | Diagnose
    | Adopt
    | Expire
    | Combine
    | Ask
    | Hear
    | Evaluate
    | LookAtEvaluator
    | Killed
    | Return
    | Refuse
    | Save
    | Restore
    | GoBack
    | AwaitKill
    | StopWorkers
    | EndTraining
)
REQUESTS: MessageCodec[AnyRequest] = MessageCodec(get_args(AnyRequest))
OUTCOMES: MessageCodec[Outcome] = MessageCodec([Outcome])

"""The reports of a peer's process to the coordinator, over the host."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, get_args

from testbed.channel import ReceivedMessage
from testbed.messages.codec import MessageCodec
from testbed.training.exchange import Answered, Hears, Step, Suspects
from testbed.training.peer_bytes import Message


@dataclass(frozen=True, slots=True)
class Met:
    """The peer is connected.

    Attributes:
        incarnation: how often it was killed.
        others: the peers that it is connected to.
        version: that of its parameters.
    """

    incarnation: int
    others: Sequence[int]
    version: int


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The peer has lost its connection to another one.

    Attributes:
        incarnation: how often the other one was killed before.
        ready, waits_for: as in ``OrderDone``.
    """

    peer: int
    incarnation: int
    ready: bool
    waits_for: Sequence[int]


@dataclass(frozen=True, slots=True)
class OrderDone:
    """The peer has carried out an order of the virtual clock.

    Attributes:
        lacking: of SETTLE, the peers whose kernels lack something.
    """

    ready: bool
    waits_for: Sequence[int]
    lacking: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ReceivedSoFar:
    """The bytes that the peer has received since it began; ``incarnation`` as in ``Met``."""

    incarnation: int
    payload_bytes: int
    message_bytes: int


@dataclass(frozen=True, slots=True)
class Parted:
    """The peer has disconnected, and has received so much from the others since it began."""

    payload_bytes: int
    message_bytes: int
    parameters_sha256: str


FromPeer: TypeAlias = (
    Met | ConnectionLost | OrderDone | ReceivedSoFar | Parted | Step | Answered | Suspects | Hears
)
_CODEC: MessageCodec[FromPeer] = MessageCodec(get_args(FromPeer))


def decoded(fields: dict[str, object]) -> FromPeer:
    """Return a report as it was made.

    Raises:
        InvalidMessageError: it is none.
    """
    report = _CODEC.decode(ReceivedMessage(fields))
    if isinstance(report, Step | Answered):
        return replace(report, messages=[Message(*one) for one in report.messages])
    return report

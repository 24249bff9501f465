"""The codec between the dataclass of a message and what a channel carries.

A message travels as one JSON object: its ``kind``, which is the name of its class in snake case, and
every field of the class. The field ``raw``, if the class has one, holds bytes (arrays, say) and travels
after the JSON object instead of in it. Fields hold plain JSON values; a tuple arrives as a list.

A message of an unknown kind or with other fields is refused as a whole, and never guessed at. Where the
sender runs code of a user beside the testbed's own, the types of values are checked, too.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from testbed.channel import Channel, InvalidMessageError, ReceivedMessage

KIND = "kind"
RAW = "raw"
M = TypeVar("M")


@functools.cache
def kind(message_type: type) -> str:
    """Return the kind that a message's class has in JSON: ``EvaluationDue`` is evaluation_due."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message_type.__name__).lower()


@functools.cache
def _names(message_type: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(message_type) if one.name != RAW)


@functools.cache
def _has_raw(message_type: type) -> bool:
    return any(one.name == RAW for one in fields(message_type))


@functools.cache
def _types(message_type: type) -> dict[str, tuple[type, ...]]:
    """Return the types that the value of each JSON field may have; none for a field of any type."""
    hints = get_type_hints(message_type)
    return {name: _of_hint(hints[name]) for name in _names(message_type)}


def _of_hint(hint: Any) -> tuple[type, ...]:
    if hint is Any:
        return ()
    origin = get_origin(hint) or hint
    if origin is UnionType:
        return tuple(own for one in get_args(hint) for own in _of_hint(one))
    if issubclass(origin, Mapping):
        return (dict,)
    if issubclass(origin, Sequence) and origin is not str:
        return (list,)
    return (int, float) if origin is float else (origin,)


def encode(message: Any) -> tuple[dict[str, Any], bytes]:
    """Return the JSON object and the raw bytes of a message, an instance of one of the dataclasses."""
    own: Any = type(message)
    content = {KIND: kind(own)} | {name: getattr(message, name) for name in _names(own)}
    return content, getattr(message, RAW) if _has_raw(own) else b""


def send(channel: Channel, message: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a message, an instance of one of the dataclasses; see ``Channel.send`` for the errors."""
    channel.send(*encode(message), descriptors)


class MessageCodec(Generic[M]):
    """Decodes the messages of a channel; ``M`` is the union of their types."""

    def __init__(self, types: Sequence[Any], *, checked: bool = False) -> None:
        """Accept the given kinds of messages, those of ``M``, and no others.

        Args:
            checked: True to refuse values of other types than the fields'.
        """
        self._checked = checked
        self._types = {kind(one): one for one in types}

    def decode(self, received: ReceivedMessage) -> M:
        """Return the message that was received.

        Raises:
            InvalidMessageError: the kind is unknown, a field is missing, does not belong to it, or is
                of another type.
        """
        content: dict[str, Any] = dict(received.fields)
        name = content.pop(KIND, None)
        own: Any = self._types.get(name) if isinstance(name, str) else None
        if own is None:
            raise InvalidMessageError(f"a message of the unknown kind {name!r}")
        expected = _names(own)
        if missing := [one for one in expected if one not in content]:
            raise InvalidMessageError(f"a message {name} without {', '.join(missing)}")
        if len(content) > len(expected):
            foreign = ", ".join(sorted(content.keys() - set(expected)))
            raise InvalidMessageError(f"a message {name} with {foreign}, which it does not have")
        for field, types in _types(own).items() if self._checked else ():
            if types and type(content[field]) not in types:
                raise InvalidMessageError(f"a message {name} whose {field} is not valid")
        if _has_raw(own):
            content[RAW] = received.raw
        elif received.raw:
            raise InvalidMessageError(f"a message {name} with raw bytes, which it does not have")
        message: M = own(**content)
        return message

    def receive(self, channel: Channel) -> M | None:
        """Wait for the next message; return None once every writer has closed its end.

        Raises:
            InvalidMessageError: see ``decode``.
            OSError: see ``Channel.receive``.
        """
        received = channel.receive()
        return None if received is None else self.decode(received)

"""What the fields of a header mean in each kind of message: the table from which dissectors are made.

Places and types are those of ``frames.LAYOUT``, by which headers are written. ``MEANINGS`` says which
of them a kind uses, and under which name; a field that it does not use is 0.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from testbed.wire.encodings import describe
from testbed.wire.frames import HEADER, LAYOUT, MAGIC, PROTOCOL, Kind

MEANINGS: dict[Kind, dict[str, dict[str, str]]] = {
    Kind.HELLO: {"number": {"device": "I", "incarnation": "H", "kills": "H"}},
    Kind.WELCOME: {"number": {"parameters": "Q"}, "count": {"returns": "I"}},
    Kind.PULL: {},
    Kind.PARAMETERS: {
        "encoding": {"encoding": "B"},
        "number": {"version": "Q"},
        "count": {"batch": "I"},
    },
    Kind.PUSH: {
        "encoding": {"encoding": "B"},
        "number": {"base": "Q"},
        "loss": {"loss": "f"},
        "count": {"updates": "I"},
    },
    Kind.STOP: {},
    Kind.FINISHED: {"number": {"base": "Q"}},
    Kind.RESUME: {"number": {"parameters": "Q"}},
}
"""By kind and field of the header, the names and types of what it holds."""
ENCODING_TEXTS = {
    byte: text for byte in range(256) if not (text := describe(byte)).startswith("unknown")
}
"""The meaning of each encoding byte."""
CUT = 2
"""Bytes at a header's end that a capture of headers cuts off, at 96 bytes of a packet with timestamps.

They are the upper ones of the length and 0 in every message: no body has 2⁴⁸ bytes.
"""

ONLY_IF_NOT_0 = frozenset(("incarnation", "kills", "returns", "batch", "updates"))
"""Fields that most messages of their kind do not use, which are left out of lines where they are 0."""
_FRAMING = ("magic", "protocol", "kind", "zeros", "length")


@dataclass(frozen=True, slots=True)
class HeaderField:
    """A field of the header in one kind of message.

    Attributes:
        name: the name of its meaning; where the kind does not use it, that of ``frames.LAYOUT``.
        offset: its first byte in the header.
        format: its type as ``struct`` writes it.
        used: False if it is 0 in this kind.
    """

    name: str
    offset: int
    format: str
    used: bool

    @property
    def size(self) -> int:
        """Its number of bytes."""
        return struct.calcsize(f"<{self.format}")


@cache
def header_fields(kind: Kind) -> tuple[HeaderField, ...]:
    """Return all fields of a message's header, in order."""
    return tuple(_fields(kind))


def _fields(kind: Kind) -> Iterator[HeaderField]:
    offset = 0
    for name, whole in LAYOUT.items():
        meaning = MEANINGS[kind].get(name)
        for part, form in (meaning or {name: whole}).items():
            field = HeaderField(part, offset, form, meaning is not None or name in _FRAMING)
            yield field
            offset += field.size


def meant_fields(kind: Kind) -> tuple[HeaderField, ...]:
    """Return the fields that only some kinds of messages have, such as a push's base version."""
    return tuple(
        field for field in header_fields(kind) if field.used and field.name not in _FRAMING
    )


def begins_message(data: bytes) -> bool:
    """Return True if the header of a message begins here; its last ``CUT`` bytes may be missing."""
    return (
        len(data) >= HEADER.size - CUT
        and data[:3] == MAGIC + bytes([PROTOCOL])
        and data[3] in MEANINGS
        and not any(data[5:8])
    )


def message_size(header: bytes) -> int:
    """Return the bytes of a message in its stream, header included."""
    length: int = HEADER.unpack(header[: HEADER.size].ljust(HEADER.size, b"\0"))[-1]
    return HEADER.size + length


def read_fields(header: bytes) -> tuple[Kind, dict[str, int | float | str]]:
    """Return a message's kind, and its meant fields by name; an encoding is text."""
    kind = Kind(header[3])
    values: dict[str, int | float | str] = {}
    for field in meant_fields(kind):
        (value,) = struct.unpack_from(f"<{field.format}", header, field.offset)
        values[field.name] = describe(value) if field.name == "encoding" else value
    return kind, values


def as_line(values: Mapping[str, int | float | str]) -> str:
    """Return fields as one line: ``base=17, loss=0.53``."""
    return ", ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values.items()
        if value or name not in ONLY_IF_NOT_0
    )

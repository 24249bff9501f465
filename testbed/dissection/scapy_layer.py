"""The testbed's messages as layers of scapy; importing this module binds them to the servers' port.

    import testbed.dissection.scapy_layer
    packets = rdpcap("traffic/ingress.pcapng")
    packets = sniff(offline="traffic/ingress.pcapng", session=TCPSession)

With ``rdpcap`` a packet that begins with a header is its message. With ``TCPSession`` messages are put
together from packets, if the capture has these in full, and know the worker that has opened the
connection. From a capture of headers both give the same messages.
"""

import struct
from collections.abc import Iterator
from typing import Any

from scapy.config import conf
from scapy.fields import ByteEnumField, Field, FieldLenField, StrFixedLenField, StrLenField
from scapy.layers.inet import TCP
from scapy.packet import Packet, bind_layers

from testbed.training.run_devices import PORT
from testbed.wire.frames import HEADER, MAGIC, PROTOCOL, Kind
from testbed.wire.header_fields import (
    ENCODING_TEXTS,
    HeaderField,
    as_line,
    begins_message,
    header_fields,
    meant_fields,
    message_size,
)


class _Length(FieldLenField):
    """The length of the body; its upper bytes are 0 and may not have been captured."""

    def getfield(self, packet: Packet, data: bytes) -> tuple[bytes, int]:
        rest, value = super().getfield(packet, data.ljust(self.sz, b"\0"))
        return rest, int(value)


class _Told(Field[int | None, bytes]):
    """A value that is not in the packet but known from the connection."""

    def getfield(self, packet: Packet, data: bytes) -> tuple[bytes, None]:
        return data, None

    def addfield(self, packet: Packet, data: bytes, value: int | None) -> bytes:
        return data


class Message(Packet):
    """A message of any kind.

    Attributes:
        worker: number of the device that has opened the connection; None if that is not known.
    """

    kind_of_message: Kind

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: object, **__: object) -> type[Packet]:
        """Return the layer of the message that begins here; Raw if none does."""
        if _pkt is None:
            return cls
        return LAYERS[Kind(_pkt[3])] if begins_message(_pkt) else conf.raw_layer

    @property
    def captured(self) -> int:
        """The bytes of the body that the packet has; the header says how many there are."""
        return len(self.body)

    def mysummary(self) -> str:
        """Return the message as one reads it: ``Push(worker=3, base=17, …)``."""
        said: dict[str, int | float | str] = {}
        if self.worker is not None:
            said["worker"] = self.worker
        for field in meant_fields(self.kind_of_message):
            value = getattr(self, field.name)
            said[field.name] = (
                ENCODING_TEXTS.get(value, value) if field.name == "encoding" else value
            )
        size = HEADER.size + (self.length or len(self.body))
        missing = (self.length or 0) - self.captured
        rest = f", {missing:,} of them not captured" if missing > 0 else ""
        line = as_line(said)
        return f"{self.name}({line}{', ' if line else ''}{size:,} bytes{rest})"

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        return (s, None) if begins_message(s) else (b"", s)

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return self.dispatch_hook(payload)

    @classmethod
    def tcp_reassemble(
        cls, data: bytes, metadata: dict[str, Any], session: dict[str, Any]
    ) -> Packet | None:
        """Return the messages that are complete, and those of which no more was captured."""
        packet = metadata.get("original")  # None for the rest of a packet with several messages
        cut = packet is not None and (packet.wirelen or 0) > len(packet.original)
        end = 0
        while begins_message(data[end : end + HEADER.size]):
            size = message_size(data[end : end + HEADER.size])
            if end + size > len(data):
                break
            end += size
        if cut:
            end = len(data)
        elif end == 0:
            if not MAGIC.startswith(data[:2]):  # the rest of a body that was not captured
                return conf.raw_layer(data)
            if begins_message(data):
                metadata["tcp_min_len"] = message_size(data)
            return None
        first: Packet = cls.dispatch_hook(data)(data[:end])
        for message in messages_in(first):
            if isinstance(message, LAYERS[Kind.HELLO]):
                session["worker"] = message.device
            message.worker = session.get("worker")
        if end < len(data):
            first.add_payload(conf.padding_layer(data[end:]))
        return first


def messages_in(packet: Packet) -> Iterator[Message]:
    """Yield the messages of a packet, in their order."""
    layer = packet.getlayer(Message, _subclass=True)
    while isinstance(layer, Message):
        yield layer
        layer = layer.payload


def _layer(kind: Kind) -> type[Message]:
    described = [_described(kind, field) for field in header_fields(kind)]
    fields = [*described, StrLenField("body", b"", length_from=lambda packet: packet.length)]
    name = kind.name.capitalize()
    content = {
        "name": name,
        "kind_of_message": kind,
        "fields_desc": [_Told("worker", None, "B"), *fields],
        "__doc__": f"A message of the kind {kind.name}.",
        "__module__": __name__,
    }
    return type(name, (Message,), content)


def _described(kind: Kind, field: HeaderField) -> Any:
    """Return a field as scapy describes it."""
    match field.name:
        case "magic":
            return StrFixedLenField("magic", MAGIC, field.size)
        case "kind":
            return ByteEnumField("kind", int(kind), {int(one): one.name for one in Kind})
        case "zeros":
            return StrFixedLenField("zeros", b"\0" * field.size, field.size)
        case "length":
            return _Length("length", None, fmt=f"<{field.format}", length_of="body")
        case "encoding" if field.used:
            return ByteEnumField("encoding", 0, ENCODING_TEXTS)
        case _:
            (zero,) = struct.unpack(f"<{field.format}", bytes(field.size))
            value = PROTOCOL if field.name == "protocol" else zero
            return Field(field.name, value, f"<{field.format}")


LAYERS: dict[Kind, type[Message]] = {kind: _layer(kind) for kind in Kind}
"""The layer of each kind of message."""
Hello = LAYERS[Kind.HELLO]
Welcome = LAYERS[Kind.WELCOME]
Pull = LAYERS[Kind.PULL]
Parameters = LAYERS[Kind.PARAMETERS]
Push = LAYERS[Kind.PUSH]
Stop = LAYERS[Kind.STOP]
Finished = LAYERS[Kind.FINISHED]
Resume = LAYERS[Kind.RESUME]

bind_layers(TCP, Message, dport=PORT)
bind_layers(TCP, Message, sport=PORT)

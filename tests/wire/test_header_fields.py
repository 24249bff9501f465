"""The table of header fields is the header: no byte is left out, and what is written is read."""

import pytest

from testbed.roles.transport.greeting import Identity
from testbed.wire.frames import HEADER, Kind, header
from testbed.wire.header_fields import (
    as_line,
    begins_message,
    header_fields,
    message_size,
    read_fields,
)


@pytest.mark.parametrize("kind", Kind)
def test_the_fields_of_every_kind_fill_the_header(kind: Kind) -> None:
    place = 0
    for field in header_fields(kind):
        assert field.offset == place
        place += field.size
    assert place == HEADER.size
    assert len({field.name for field in header_fields(kind)}) == len(header_fields(kind))


def test_what_is_written_is_read() -> None:
    push = header(Kind.PUSH, 17, encoding=4, loss=0.5, count=2, length=100)
    fields: dict[str, int | float | str] = {
        "encoding": "rice float32",
        "base": 17,
        "loss": 0.5,
        "updates": 2,
    }
    assert read_fields(push) == (Kind.PUSH, fields)
    assert as_line(fields) == "encoding=rice float32, base=17, loss=0.5, updates=2"
    assert message_size(push) == 132
    identity = Identity(7, incarnation=2, kills=1)
    hello = header(Kind.HELLO, int(identity), length=32)
    assert read_fields(hello) == (Kind.HELLO, {"device": 7, "incarnation": 2, "kills": 1})
    parameters = header(Kind.PARAMETERS, 3, encoding=1, length=8)
    assert as_line(read_fields(parameters)[1]) == "encoding=dense float32, version=3"


def test_a_header_is_recognised_without_its_last_two_bytes() -> None:
    push = header(Kind.PUSH, 17, length=437_544)
    assert begins_message(push[:30]) and message_size(push[:30]) == message_size(push)
    assert not begins_message(push[:29])
    assert not begins_message(b"TC" + push[2:]) and not begins_message(
        push[:3] + b"\x09" + push[4:]
    )

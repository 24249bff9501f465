"""Messages over a channel: what is sent arrives, and anything else is refused with one sentence."""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest

from testbed.channel import LARGEST, Channel, InvalidMessageError, ReceivedMessage
from testbed.messages.agent_reports import EVENTS, CountersSampled, Event, ProcessExited
from testbed.messages.codec import MessageCodec, kind, send
from testbed.messages.processes import (
    CONTAINER_EVENTS,
    CONTAINER_REQUESTS,
    FORK_REQUESTS,
    ContainerEvent,
    ContainerRequest,
    ForkRequest,
)
from testbed.messages.reports import (
    REPORTS,
    RoleReport,
    ServerRestored,
    Suspected,
    UpdatesApplied,
    VersionEvaluated,
)
from testbed.messages.requests import REQUESTS, Request

CODECS: list[tuple[MessageCodec[Any], Sequence[Any]]] = [
    (REPORTS, get_args(RoleReport)),
    (EVENTS, get_args(Event)),
    (REQUESTS, get_args(Request)),
    (FORK_REQUESTS, get_args(ForkRequest)),
    (CONTAINER_REQUESTS, get_args(ContainerRequest)),
    (CONTAINER_EVENTS, get_args(ContainerEvent)),
]


def made(own: type, field: str, number: int) -> Any:
    """Return a value for a field, of its type."""
    of = get_type_hints(own)[field]
    hint = str(of)
    if is_typeddict(of) or "Mapping" in hint or "dict" in hint:
        return {field: number}
    if "Sequence" in hint or "tuple" in hint or "list" in hint:
        return [number]
    if "str" in hint:
        return f"{field} {number}"
    return bool(number % 2) if "bool" in hint else number


@pytest.mark.parametrize(("codec", "types"), CODECS)
def test_every_kind_of_message_arrives_as_it_was_sent(
    codec: MessageCodec[Any], types: Sequence[Any]
) -> None:
    ours, theirs = Channel.pair()
    for number, own in enumerate(types):
        values = {one.name: made(own, one.name, number) for one in fields(own) if one.name != "raw"}
        raw = {"raw": bytes([number]) * 9} if "raw" in {one.name for one in fields(own)} else {}
        message = own(**values, **raw)
        send(ours, message)
        assert codec.receive(theirs) == message
    ours.close()
    assert codec.receive(theirs) is None
    theirs.close()


@pytest.mark.parametrize(("codec", "types"), CODECS)
def test_fields_left_at_their_defaults_travel_too(
    codec: MessageCodec[Any], types: Sequence[Any]
) -> None:
    ours, theirs = Channel.pair()
    for own in types:
        needed = [one.name for one in fields(own) if one.default is MISSING]
        values: dict[str, Any] = {name: made(own, name, 1) for name in needed}
        message = own(**values | ({"raw": b""} if "raw" in needed else {}))
        send(ours, message)
        assert codec.receive(theirs) == message


def test_a_message_is_one_json_object_and_its_raw_bytes() -> None:
    ours, theirs = Channel.pair()
    send(ours, UpdatesApplied(7, b"\n{}\0"))
    fields = {"kind": "updates_applied", "version": 7, "server": 0}
    assert theirs.receive() == ReceivedMessage(fields, b"\n{}\0")
    send(ours, ProcessExited("worker-0", -9))
    exited = {"kind": "process_exited", "device": "worker-0", "status": -9, "memory_limit": None}
    assert theirs.receive() == ReceivedMessage(exited)


def test_a_long_message_and_a_loss_that_is_not_finite_arrive() -> None:
    ours, theirs = Channel.pair()
    rows = bytes(range(256)) * LARGEST
    send(ours, CountersSampled(rows))
    assert EVENTS.receive(theirs) == CountersSampled(rows)
    send(ours, VersionEvaluated(3, 10.0, float("inf"), 1.5))
    assert REPORTS.receive(theirs) == VersionEvaluated(3, 10.0, float("inf"), 1.5)
    send(ours, ServerRestored(3, (0, 2), {"updates": 4}, [0, 1]))
    assert REPORTS.receive(theirs) == ServerRestored(3, [0, 2], {"updates": 4}, [0, 1])


SUSPECTED = {
    "kind": "suspected",
    "worker": 1,
    "silent": 2.0,
    "time": 3.0,
    "version": 4,
}


@pytest.mark.parametrize(
    ("received", "reason"),
    [
        (ReceivedMessage({}), "a message of the unknown kind None"),
        (ReceivedMessage({"kind": "stands"}), "a message of the unknown kind 'stands'"),
        (ReceivedMessage({"kind": ["server_listening"]}), "a message of the unknown kind"),
        (
            ReceivedMessage({"kind": "libraries_loaded"}),
            "a message of the unknown kind 'libraries_loaded'",
        ),
        (
            ReceivedMessage({"kind": "suspected", "worker": 1, "version": 4}),
            "a message suspected without silent, time",
        ),
        (
            ReceivedMessage(SUSPECTED | {"iteration": 4, "run_time": 3.0}),
            "a message suspected with iteration, run_time, which it does not have",
        ),
        (
            ReceivedMessage(SUSPECTED | {"raw": "bytes"}),
            "a message suspected with raw, which it does not have",
        ),
        (
            ReceivedMessage(SUSPECTED, b"bytes"),
            "a message suspected with raw bytes, which it does not have",
        ),
        (
            ReceivedMessage(SUSPECTED | {"worker": "1"}),
            "a message suspected whose worker is",
        ),
        (
            ReceivedMessage(SUSPECTED | {"worker": True}),
            "a message suspected whose worker is",
        ),
        (
            ReceivedMessage(
                {"kind": "updates_applied", "version": 1, "server": 0, "raw": "x"}, b"y"
            ),
            "a message updates_applied with raw, which it does not have",
        ),
    ],
)
def test_anything_else_is_refused_with_its_reason(received: ReceivedMessage, reason: str) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        REPORTS.decode(received)
    assert str(refused.value).startswith(reason)
    assert REPORTS.decode(ReceivedMessage(SUSPECTED)) == Suspected(1, 2.0, 3.0, 4)


def test_no_two_kinds_of_one_channel_have_the_same_name() -> None:
    for _, types in CODECS:
        assert len({kind(own) for own in types}) == len(types)

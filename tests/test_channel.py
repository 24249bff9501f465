"""Channels between processes of one run."""

import os

from testbed.channel import Channel


def test_messages_stay_whole_and_carry_descriptors() -> None:
    ours, theirs = Channel.pair()
    reading, writing = os.pipe()
    ours.send({"a": 1}, b"raw\nbytes", [writing])
    ours.send({"b": [2]})
    first, second = theirs.receive(), theirs.receive()
    assert first is not None and second is not None
    assert (first.fields, first.raw, second.fields) == ({"a": 1}, b"raw\nbytes", {"b": [2]})
    os.write(first.descriptors[0], b"x")
    assert os.read(reading, 1) == b"x"
    for fd in (reading, writing, *first.descriptors):
        os.close(fd)
    ours.close()
    assert theirs.receive() is None
    theirs.close()


def test_an_end_closed_with_messages_unread_is_an_end() -> None:
    ours, theirs = Channel.pair()
    ours.send({"unread": True})  # the kernel tells that as a reset
    theirs.send({"last": "words"})
    theirs.close()
    last = ours.receive()
    assert last is not None and last.fields == {"last": "words"}
    assert ours.receive() is None
    ours.close()


def test_several_writers_end_with_the_last() -> None:
    ours, theirs = Channel.pair()
    other = Channel.from_descriptor(os.dup(theirs.fileno()))
    theirs.close()
    other.send({"still": "here"})
    message = ours.receive()
    assert message is not None and message.fields == {"still": "here"}
    other.close()
    assert ours.receive() is None
    ours.close()

"""Channels between processes of one run: whole messages, descriptors, several writers, the end."""

import errno
import fcntl
import gc
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from testbed.channel import (
    LARGEST,
    MOST_DESCRIPTORS,
    Channel,
    InvalidMessageError,
    ReceivedMessage,
    readable,
)

HIGH = 1500
"""A descriptor that select(2) refuses."""


def open_descriptors() -> int:
    """Return how many this process has, without those that other tests have left to the collector."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


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


def test_closing_with_unread_messages_is_received_as_the_end() -> None:
    ours, theirs = Channel.pair()
    ours.send({"unread": True})  # the kernel reports this as a reset
    theirs.send({"last": "words"})
    theirs.close()
    last = ours.receive()
    assert last is not None and last.fields == {"last": "words"}
    assert ours.receive() is None
    ours.close()


def test_a_channel_ends_when_its_last_writer_closes() -> None:
    ours, theirs = Channel.pair()
    other = Channel.from_descriptor(os.dup(theirs.fileno()))
    theirs.close()
    other.send({"still": "here"})
    message = ours.receive()
    assert message is not None and message.fields == {"still": "here"}
    other.close()
    assert ours.receive() is None
    ours.close()


@pytest.mark.parametrize("size", [LARGEST - 100, LARGEST, 5_000_000])
def test_a_message_may_be_longer_than_a_packet(size: int) -> None:
    ours, theirs = Channel.pair()
    raw = os.urandom(size)
    open_before = open_descriptors()
    ours.send({"names": ["worker"] * 50_000}, raw)  # exceeds the kernel's buffer; must not wait
    ours.send({"next": True})
    first, second = theirs.receive(), theirs.receive()
    assert first is not None and second is not None
    assert first.fields == {"names": ["worker"] * 50_000}
    assert first.raw == raw
    assert (first.descriptors, second.fields) == ((), {"next": True})
    assert open_descriptors() == open_before
    ours.close()
    theirs.close()


def test_a_long_message_carries_descriptors_too() -> None:
    ours, theirs = Channel.pair()
    sent = [os.open("/dev/null", os.O_RDONLY) for _ in range(MOST_DESCRIPTORS)]
    ours.send({}, bytes(2 * LARGEST), sent)
    message = theirs.receive()
    assert message is not None and len(message.descriptors) == MOST_DESCRIPTORS
    numbers = {(os.fstat(fd).st_dev, os.fstat(fd).st_ino) for fd in (*sent, *message.descriptors)}
    assert len(numbers) == 1
    with pytest.raises(ValueError, match="201 descriptors"):
        ours.send({}, descriptors=[0] * (MOST_DESCRIPTORS + 1))
    for fd in (*sent, *message.descriptors):
        os.close(fd)
    ours.close()
    theirs.close()


def test_messages_of_several_writers_do_not_mix() -> None:
    """Four processes write to one end at once, long and short messages in turn."""
    ours, theirs = Channel.pair()
    writers, messages = range(4), 150

    def raw(writer: int, number: int) -> bytes:
        # Nine messages in ten fit into a packet; the others are longer, by up to 840 kB.
        length = 40 * number if number % 10 else LARGEST + 6_000 * number
        return bytes((writer + 1, number % 256)) * (length // 2)

    processes = []
    for writer in writers:
        process = os.fork()
        if not process:
            for number in range(messages):
                theirs.send({"writer": writer, "number": number}, raw(writer, number))
            os._exit(0)
        processes.append(process)
    theirs.close()
    received: dict[int, list[int]] = {writer: [] for writer in writers}
    while (message := ours.receive()) is not None:
        writer, number = message.fields["writer"], message.fields["number"]
        received[writer].append(number)
        assert message.raw == raw(writer, number)
    assert received == {writer: list(range(messages)) for writer in writers}
    for process in processes:
        assert os.waitpid(process, 0)[1] == 0
    ours.close()


def test_a_reader_without_free_descriptors_raises_emfile() -> None:
    ours, theirs = Channel.pair()
    ours.send({"long": "x" * LARGEST})
    child = os.fork()
    if not child:
        free = os.dup(0)  # the lowest number that is free
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
        try:
            theirs.receive()
        except OSError as error:
            os._exit(0 if error.errno == errno.EMFILE and "open files" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ours.close()
    theirs.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process have more than 1,024 files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= HIGH:
        pytest.skip(f"this user may have {hard} files open, and the test needs {HIGH}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, HIGH + 1), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_descriptors_above_1023_are_waited_for() -> None:
    ours, theirs = Channel.pair()
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH)
    theirs.close()
    reader = Channel.from_descriptor(high)
    assert not reader.readable(0)
    assert not readable(high, 0.001)
    ours.send({"here": 1})
    assert reader.readable(60)
    assert reader.receive() is not None
    ours.close()
    assert reader.readable(60)  # the end makes it readable, too
    reader.close()


def test_a_channel_reports_whether_it_has_room() -> None:
    ours, theirs = Channel.pair()
    assert ours.has_room()
    sent = 0
    while ours.has_room():
        ours.send({"x": "y" * 1000})  # does not wait: there is room
        sent += 1
    assert sent > 10
    for _ in range(sent):
        assert theirs.receive() is not None
    assert ours.has_room()
    ours.end()
    assert theirs.receive() is None
    theirs.send({"still": "heard"})
    message = ours.receive()
    assert message is not None and message.fields == {"still": "heard"}
    ours.close()
    theirs.close()


def _memory_file(size: int, seals: int) -> int:
    file = os.memfd_create("message", os.MFD_ALLOW_SEALING)
    os.truncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@pytest.mark.parametrize(
    ("packet", "files", "why"),
    [
        (b"\0\1{[x\n", [], "no JSON"),
        (b"[1]\n", [], "no JSON object"),
        (b"[" * 6_000, [], "no JSON"),
        (b"{" + b" " * LARGEST, [], "a packet of more than"),
        (b"\0", [], "without its memory file"),
        (b"{}\n", [(0, ALL_SEALS)], "a message with descriptors"),
        (b"\0", [(1 << 50, 0)], "that its sender can still change"),
        (b"\0", [(1 << 50, ALL_SEALS)], "and 1,000 are the most"),
        (b"{}\n", [(0, 0)] * 253, "more descriptors than there is room for"),
    ],
)
def test_what_a_stranger_sends_is_refused_and_takes_neither_memory_nor_descriptors(
    packet: bytes, files: list[tuple[int, int]], why: str
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(ours)
    sent = [_memory_file(*one) for one in files]
    socket.send_fds(theirs, [packet], sent)
    before = open_descriptors()
    with pytest.raises(InvalidMessageError, match=why):
        channel.receive(most=1_000)
    assert open_descriptors() == before
    theirs.send(b'{"a":1}\n')
    assert channel.receive(most=1_000) == ReceivedMessage({"a": 1})
    for file in sent:
        os.close(file)
    channel.close()
    theirs.close()

"""Channels whose ends are on two hosts behave like channels of one."""

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.channel import Channel, InvalidMessageError
from testbed.orchestrator.hosts.relay import CONTROL, FIRST_ORDERS, OUTPUT, Relay
from testbed.orchestrator.hosts.secured_connection import ConnectionLostError, SecuredConnection
from tests.orchestrator.hosts.test_secured_connection import SECRET, proven

START = {"kind": "start_role", "device": "worker-0", "role": {"role": "worker", "number": 0}}


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@dataclass
class Carried:
    """The outer ends of a run's channels, with two relays between them."""

    control: Channel
    orders: socket.socket
    agent: Channel
    device: socket.socket
    output: socket.socket
    connections: tuple[SecuredConnection, SecuredConnection]
    written: bytearray
    problems: list[Exception]
    threads: list[threading.Thread]


@pytest.fixture
def carried() -> Iterator[Carried]:
    caller, called = proven(SECRET, SECRET)
    assert isinstance(caller, SecuredConnection)
    assert isinstance(called, SecuredConnection)
    (control, here), (orders, of_orders) = pair(), pair()
    (agent, there), (device, of_device) = pair(), pair()
    output, of_output = socket.socketpair()
    written, problems = bytearray(), list[Exception]()
    relays = (
        Relay(caller, {CONTROL: here, FIRST_ORDERS: of_orders}, calls=True, output=written.extend),
        Relay(called, {CONTROL: there, FIRST_ORDERS: of_device, OUTPUT: of_output}, calls=False),
    )

    def run(relay: Relay) -> None:
        try:
            relay.run()
        except (ConnectionLostError, InvalidMessageError) as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in relays]
    for thread in threads:
        thread.start()
    yield Carried(
        *(Channel(control), orders, Channel(agent), device, output),
        *((caller, called), written, problems, threads),
    )
    for one in (caller.socket, called.socket):
        with contextlib.suppress(OSError):  # it may have ended
            one.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(10)
    for end in (caller.socket, called.socket, control, here, orders, of_orders):
        end.close()
    for end in (agent, there, device, of_device, output, of_output):
        end.close()


def test_messages_of_any_length_keep_their_order(carried: Carried) -> None:
    sizes = [1, 6_000, 3_000_000, 10, 500_000, 0]
    for size in sizes:
        carried.control.send({"size": size}, bytes(size))
    for size in sizes:
        received = carried.agent.receive()
        assert received is not None
        assert (received.fields, len(received.raw)) == ({"size": size}, size)


def test_a_role_reports_over_a_channel_of_its_own_until_it_ends(carried: Carried) -> None:
    ours, theirs = Channel.pair()
    carried.control.send(START, descriptors=(theirs.fileno(),))
    theirs.close()
    request = carried.agent.receive()
    assert request is not None
    report = Channel.from_descriptor(request.descriptors[0])
    for number in range(500):
        report.send({"number": number}, bytes(number))
    report.close()
    for number in range(500):
        received = ours.receive()
        assert received is not None
        assert received.fields == {"number": number}
    assert ours.receive() is None


def test_orders_wait_for_a_device_that_reads_none_and_hold_nothing_up(carried: Carried) -> None:
    orders = [number.to_bytes(9, "little") for number in range(5_000)]
    for order in orders:
        carried.orders.send(order)
    carried.control.send({"after": "all"})
    received = carried.agent.receive()
    assert received is not None
    assert received.fields == {"after": "all"}
    assert [carried.device.recv(9) for _ in orders] == orders


def test_what_was_sent_before_a_request_is_there_before_it(carried: Carried) -> None:
    orders = [number.to_bytes(9, "little") for number in range(150)]
    for order in orders:
        carried.orders.send(order)
    carried.control.send({"after": "all"})
    assert carried.agent.receive() is not None
    carried.device.setblocking(False)
    assert [carried.device.recv(9) for _ in orders] == orders


def test_orders_of_a_killed_process_do_not_reach_the_next_one(carried: Carried) -> None:
    for number in range(5_000):
        carried.orders.send(number.to_bytes(9, "little"))
    ours, theirs = Channel.pair()
    carried.control.send(START, descriptors=(theirs.fileno(),))
    theirs.close()
    assert carried.agent.receive() is not None
    carried.device.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while carried.device.recv(9):  # as the next process does when it starts
            pass
    carried.device.setblocking(True)
    carried.orders.send(b"the first")
    assert carried.device.recv(9) == b"the first"
    ours.close()


def test_the_end_of_a_run_goes_there_and_comes_back(carried: Carried) -> None:
    carried.control.end()
    assert carried.agent.receive() is None
    carried.agent.send({"left": "nothing"})
    carried.output.sendall(b"\0 the last words")
    carried.agent.close()
    carried.output.close()
    received = carried.control.receive()
    assert received is not None
    assert received.fields == {"left": "nothing"}
    assert carried.control.receive() is None
    for thread in carried.threads:
        thread.join(10)
        assert not thread.is_alive()
    assert bytes(carried.written) == b"\0 the last words"
    assert carried.problems == []


def test_a_connection_that_is_lost_ends_both_relays(carried: Carried) -> None:
    carried.connections[0].socket.shutdown(socket.SHUT_RDWR)
    for thread in carried.threads:
        thread.join(10)
        assert not thread.is_alive()
    assert len(carried.problems) == 2


def memory_file(size: int, *, sealed: bool) -> int:
    file = os.memfd_create("message", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    if sealed:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, 0x2 | 0x4 | 0x8 | 0x1)
    return file


@pytest.mark.parametrize(
    ("content", "file"),
    [
        (b"\0", lambda: memory_file(1 << 40, sealed=True)),
        (b"\0", lambda: memory_file(10, sealed=False)),
        (b"{}\n", lambda: os.open(os.devnull, os.O_RDONLY)),
        (bytes(300_000), None),
    ],
    ids=["a terabyte", "a file that can change", "a descriptor", "a long packet"],
)
def test_what_a_device_may_not_send_ends_its_own_channel_only(
    carried: Carried, content: bytes, file: Callable[[], int] | None
) -> None:
    reports, ends = list[Channel](), list[socket.socket]()
    for _ in range(2):
        ours, theirs = Channel.pair()
        carried.control.send(START, descriptors=(theirs.fileno(),))
        theirs.close()
        request = carried.agent.receive()
        assert request is not None
        reports.append(ours)
        ends.append(socket.socket(fileno=request.descriptors[0]))
    hostile, other = ends
    hostile.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    if file is None:
        hostile.send(content)
    else:
        socket.send_fds(hostile, [content], [descriptor := file()])
        os.close(descriptor)
    other.send(b'{"goes": "on"}\n')
    with pytest.raises(InvalidMessageError, match="a message that is no JSON"):
        reports[0].receive(most=1 << 20)
    received = reports[1].receive(most=1 << 20)
    assert received is not None
    assert received.fields == {"goes": "on"}
    assert carried.problems == []
    for report, end in zip(reports, ends, strict=True):
        report.close()
        end.close()


def test_a_descriptor_that_comes_from_an_agent_is_refused(carried: Carried) -> None:
    with Path(os.devnull).open("rb") as nothing:
        carried.agent.send({"take": "this"}, descriptors=(nothing.fileno(),))
    carried.threads[1].join(10)
    assert [str(one) for one in carried.problems] == ["a packet with a descriptor"]

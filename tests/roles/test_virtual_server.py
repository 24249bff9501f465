"""The server under the virtual clock, with real sockets, in a thread on loopback."""

import socket
import threading
from functools import partial

import pytest

from testbed.faults.fault import Fault
from testbed.roles.computation import Times
from testbed.roles.greeting import Who
from testbed.roles.leave import Leave, What
from testbed.roles.virtual_server import VirtualServer
from testbed.wire.frames import Kind, header
from tests.roles.test_server import SIZE, Running, dense, receive, settings

TIMES = {"distribution": "constant", "mean": 0.1}
CUT_OFF = (Fault(0, "stop-network", 0.5), 0.15)
KILLED = (Fault(1, "kill", 0.1), 0.35)


class Worker:
    """One that asks, in a thread; ``stopped`` says whether it was told that training is over."""

    def __init__(self, connection: socket.socket, leave: Leave, *, ahead: bool = False) -> None:
        """Begin.

        Args:
            ahead: send two messages at once, and nothing when the second is due.
        """
        self.stopped = False
        self.sent = 0
        self._ahead = ahead
        self._connection = connection
        self._leave = leave
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        self._connection.sendall(header(Kind.PULL))
        while self._connection.recv(1, socket.MSG_PEEK):
            kind, version, _ = receive(self._connection)
            if kind is Kind.STOP:
                self.stopped = True
                break
            order = self._leave.take()
            assert order is not None
            if order.what is What.FINISHED and (not self._ahead or self.sent % 2 == 0):
                message = dense(version, 0.01) + header(Kind.PULL)
                self._connection.sendall(message * (1 + self._ahead))
            self.sent += order.what is What.FINISHED
        self._connection.close()

    def end(self) -> None:
        """Wait for the end of its connection."""
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_one_that_was_killed_while_it_was_cut_off_hears_of_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = tuple(
        {"stream": f"faults {fault.rule}", "fault": fault.to_json(), "devices": [0], "time": time}
        for fault, time in (CUT_OFF, KILLED)
    )
    run = {"clock": "virtual", "compute": TIMES, "waiting": TIMES | {"mean": 0.0}, "updates": 30}
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    ours, theirs = ([Leave(end) for end in ends] for ends in zip(*pairs, strict=True))
    times = Times.of(settings(**run))
    make = partial(VirtualServer, times=times, local_steps=1, leaves=ours)
    running = Running(monkeypatch, make, None, faults=faults, **run)
    connections = [running.connect(number) for number in (0, 1)]
    first, other = map(Worker, connections, theirs)
    assert running.until("fault", "kill")["phase"] == "begin"
    connections[0].shutdown(socket.SHUT_RDWR)
    first.end()
    assert running.until("fault", "kill")["phase"] == "end"
    second = Worker(running.connect(int(Who(0, 1))), theirs[0])
    for worker in (second, other):
        worker.end()
        assert worker.stopped
    running.close()
    for leave in (*ours, *theirs):
        leave.close()


def test_two_messages_that_come_in_one_read_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"clock": "virtual", "compute": TIMES, "waiting": TIMES | {"mean": 0.0}, "updates": 30}
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    ours, theirs = ([Leave(end) for end in ends] for ends in zip(*pairs, strict=True))
    make = partial(VirtualServer, times=Times.of(settings(**run)), local_steps=1, leaves=ours)
    running = Running(monkeypatch, make, None, **run)
    # It greets, and later sends what it sends, before it hangs up: both are read to the end.
    connections = [running.connect(number) for number in (0, 1)]
    workers = [
        Worker(connection, leave, ahead=not number)
        for number, (connection, leave) in enumerate(zip(connections, theirs, strict=True))
    ]
    for worker in workers:
        worker.end()
        assert worker.stopped
    running.until("finished")
    running.close()
    rows = [message.fields for message in running.messages if "updates" in message.fields]
    assert sum(row["updates"] for row in rows) == 30
    ledgers = {
        message.fields["connection"]: message.fields["payload_bytes"]
        for message in running.messages
        if "connection" in message.fields
    }
    # The last message of the one that sends ahead is no update any more.
    assert ledgers == {0: 16 * 4 * SIZE, 1: 15 * 4 * SIZE}
    for leave in (*ours, *theirs):
        leave.close()

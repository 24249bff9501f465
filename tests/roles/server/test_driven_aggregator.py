"""An aggregator under the virtual clock, with real sockets, driven by the test as by the clock.

It shows what the aggregator decides by itself: the wall clock's tests have the rest of its sockets.
"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from errno import ECONNRESET
from os import strerror
from typing import Any, TypeAlias

import numpy as np
import pytest

from testbed.channel import Channel
from testbed.messages import clock_requests
from testbed.messages.clock_requests import OUTCOMES, AnyRequest, Outcome, WorkerMessage
from testbed.messages.codec import send
from testbed.messages.reports import ConnectionClosed, ServerFinished
from testbed.roles.server.driven_aggregator import DrivenAggregator
from testbed.roles.server.driven_server import serve_driven
from testbed.roles.server.restart import Restart
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.transport.greeting import RESET
from testbed.wire.frames import Kind, header
from tests.roles.server.test_server import SIZE, Running, dense, hello, receive
from tests.roles.server.test_wall_aggregator import TREE, Server, above, half

__all__ = ["above"]

DENSE = 32 + 4 * SIZE


class Clock:
    """The process of the virtual clock, as the aggregator sees it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def begin(self, request: AnyRequest) -> None:
        send(self.channel, request)

    def outcome(self) -> Outcome:
        told = OUTCOMES.receive(self.channel)
        assert told is not None
        return told

    def ask(self, request: AnyRequest) -> Outcome:
        self.begin(request)
        return self.outcome()


class GoesBack:
    """An aggregator whose state is saved, and that is made anew when it goes back."""

    def __init__(self, serving: ServerInputs, channel: Channel, options: dict[str, Any]) -> None:
        def make(restart: Restart | None) -> DrivenAggregator:
            own = replace(serving, half=half(options), index=1, is_saved=True, restart=restart)
            return DrivenAggregator(own)

        self._make, self._channel = make, channel
        self.host = make(None).host

    def serve(self) -> None:
        serve_driven(self._make, self._channel, None)


Drive: TypeAlias = Callable[..., tuple[Running, Clock]]


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch, above: Server) -> Iterator[Drive]:
    made: list[tuple[Running, Clock]] = []

    def start(**options: Any) -> tuple[Running, Clock]:
        ours, theirs = Channel.pair()

        def make(serving: ServerInputs) -> GoesBack:
            return GoesBack(serving, theirs, options)

        made.append((Running(monkeypatch, make, None, **TREE | {"clock": "virtual"}), Clock(ours)))
        return made[-1]

    yield start
    for running, clock in made:
        if running.thread.is_alive():
            clock.begin(clock_requests.EndTraining((0, 0, 0, 0), ()))
            above.connection.close()
        running.close()


def begun(running: Running, clock: Clock, above: Server) -> list[socket.socket]:
    """Connect both devices, which ask, and the aggregator to its server; return the connections."""
    devices = [running.connect(number) for number in (0, 1)]
    for device in devices:
        device.sendall(header(Kind.PULL))
    assert above.accept() == 2
    assert clock.ask(clock_requests.Gather()).value == [[0, [64, 32]], [1, [64, 32]]]
    for number in (0, 1):
        clock.ask(clock_requests.Join(number))
    return devices


def serve(clock: Clock, devices: list[socket.socket], version: int) -> None:
    """Send the devices what the aggregator has."""
    for number, device in enumerate(devices):
        assert clock.ask(clock_requests.TakePull(number, 1.0)).value is True
        assert clock.ask(clock_requests.Answer(number, None)).value == DENSE
        assert receive(device)[:2] == (Kind.PARAMETERS, version)


def take(clock: Clock, number: int, base: int) -> Outcome:
    """Have the aggregator read a device's push and apply it; return what came of that."""
    one = WorkerMessage(*clock.ask(clock_requests.Receive(number)).value)
    assert (one.base_version, one.payload_bytes, one.summed) == (base, 4 * SIZE, 0)
    assert list(one.sizes) == [DENSE, 32]
    assert one.update is not None
    return clock.ask(clock_requests.Apply(number, one.update, base, one.loss, 2.0))


def test_what_has_arrived_and_what_is_pushed_is_the_clocks_decision(
    drive: Drive, above: Server
) -> None:
    running, clock = drive()
    devices = begun(running, clock, above)
    assert clock.ask(clock_requests.TakePull(0, 0.0)).value is False  # there are no parameters yet
    clock.begin(clock_requests.Adopt([0], 0.5))
    above.send(0, 1.5)  # the clock may say that they have arrived before they have
    adopted = clock.outcome()
    assert (adopted.value, adopted.version, adopted.is_due) == (None, 0, False)
    above.send(1, 2.5)  # sent, and by the clock still under way
    serve(clock, devices, 0)
    for number, device in enumerate(devices):
        device.sendall(dense(0, 2.0 + number) + header(Kind.PULL))
    assert not take(clock, 0, 0).is_due
    assert take(clock, 1, 0).is_due
    above.hears_nothing()  # the combination has closed, and leaves when the clock says so
    assert not clock.ask(clock_requests.Combine()).is_due
    pushed = above.push()
    assert (pushed.number, pushed.count) == (0, 2)
    assert set(np.frombuffer(pushed.body, np.float32)) == {5.0}
    assert clock.ask(clock_requests.TakePull(0, 3.0)).value is False
    assert clock.ask(clock_requests.Adopt([1], 3.0)).version == 1
    serve(clock, devices, 1)
    clock.ask(clock_requests.StopWorkers())
    clock.begin(clock_requests.EndTraining((8, 9, 0, 0), ()))
    above.connection.sendall(header(Kind.STOP))
    for device in devices:
        assert receive(device)[0] is Kind.STOP
        device.close()
    finished = running.until(ServerFinished)
    assert (finished.payload_bytes, finished.message_bytes, finished.late) == (8, 9, 0)


def test_what_its_server_had_not_read_is_pushed_again_after_a_kill(
    drive: Drive, above: Server
) -> None:
    running, clock = drive()
    devices = begun(running, clock, above)
    above.send(0, 1.5)
    clock.ask(clock_requests.Adopt([0], 0.5))
    serve(clock, devices, 0)
    for number, device in enumerate(devices):
        device.sendall(dense(0, 2.0 + number) + header(Kind.PULL))
        take(clock, number, 0)
    clock.ask(clock_requests.Combine())
    saved = clock.ask(clock_requests.Save([(0, []), (1, [])], unread=[1]))
    assert saved.value == [0, 1]
    devices[0].sendall(b"\0" * 7)  # what is still under way is read out
    clock.ask(clock_requests.GoBack(1))
    above.connection.close()  # the killed server
    for device in devices:
        assert device.recv(1) == b""
        device.close()
    closed = [running.until(ConnectionClosed) for _ in devices]
    assert {one.worker: one.incomplete_bytes for one in closed} == {0: 7, 1: 0}
    assert {(one.payload_bytes, one.reason) for one in closed} == {(4 * SIZE, None)}
    assert clock.ask(clock_requests.Restore(saved.raw)).version == 0
    above.accept(resume=True)
    pushed = above.push()
    assert (pushed.number, pushed.count) == (0, 2)
    assert set(np.frombuffer(pushed.body, np.float32)) == {5.0}
    # One is killed once it is back, as it may not have noticed the kill of the server, and comes again.
    for number in (0, 1, 1):
        device = running.connect()
        device.sendall(hello(number))
        assert receive(device) == (Kind.RESUME, SIZE, b"")
        devices.append(device)
        if number and len(devices) == 4:
            device.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            device.close()
    assert clock.ask(clock_requests.Gather()).value == [[0, []], [1, []]]
    # The reset may be read before the device is back, or not be told any more.
    reset = ConnectionResetError(ECONNRESET, strerror(ECONNRESET))
    assert set(running.events("warning")) <= {f"connection of a device closed: {reset}"}


def test_a_time_limit_and_late_pushes(drive: Drive, above: Server) -> None:
    running, clock = drive(within="200ms")
    devices = begun(running, clock, above)
    above.send(0, 1.5)
    assert clock.ask(clock_requests.Adopt([0], 0.5)).deadline == pytest.approx(0.7)  # by the clock
    serve(clock, devices, 0)
    assert not clock.ask(clock_requests.Expire()).is_due  # a combination of nothing is not pushed
    devices[0].sendall(dense(0, 2.0) + header(Kind.PULL))
    assert take(clock, 0, 0).is_due
    devices[1].sendall(dense(0, 8.0) + header(Kind.PULL))
    late = take(clock, 1, 0)
    assert (late.value, late.is_due) == (None, True)
    clock.ask(clock_requests.Combine())
    assert above.push().count == 1
    clock.begin(clock_requests.EndTraining((0, 0, 0, 0), ()))
    above.connection.sendall(header(Kind.STOP))
    for device in devices:
        device.close()
    assert running.until(ServerFinished).late == 1


def test_devices_that_are_gone_close_the_combination(drive: Drive, above: Server) -> None:
    running, clock = drive()
    devices = begun(running, clock, above)
    above.send(0, 1.5)
    clock.ask(clock_requests.Adopt([0], 0.5))
    serve(clock, devices, 0)
    devices[0].sendall(dense(0, 2.0) + header(Kind.PULL))
    assert not take(clock, 0, 0).is_due
    devices[1].close()
    assert clock.ask(clock_requests.Receive(1)).value is None
    assert clock.ask(clock_requests.Forget(1)).is_due
    devices[0].sendall(dense(7, 2.0) + header(Kind.PULL))
    refused = WorkerMessage(*clock.ask(clock_requests.Receive(0)).value)
    assert refused.update is not None
    wrong = clock.ask(clock_requests.Apply(0, refused.update, 7, 1.0, 3.0))
    assert wrong.error is not None and "base version 7 is not between" in wrong.error


def test_an_aggregator_without_devices_rests_and_asks_again(drive: Drive, above: Server) -> None:
    running, clock = drive()
    begun(running, clock, above)
    above.send(0, 1.5)
    clock.ask(clock_requests.Adopt([0], 0.5))
    assert not clock.ask(clock_requests.Forget(0)).is_due
    assert clock.ask(clock_requests.Forget(1)).is_due
    assert not clock.ask(clock_requests.Combine()).is_due
    assert receive(above.connection) == (Kind.FINISHED, 0, b"")
    above.hears_nothing()
    assert clock.ask(clock_requests.Ask(0)).value == 32
    assert receive(above.connection) == (Kind.PULL, 0, b"")


def test_a_server_that_is_gone_ends_the_aggregator(
    drive: Drive, above: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[BaseException | None] = []
    monkeypatch.setattr("threading.excepthook", lambda told: raised.append(told.exc_value))
    running, clock = drive()
    begun(running, clock, above)
    above.connection.close()
    clock.begin(clock_requests.Adopt([0], 0.5))
    running.thread.join(10)
    assert not running.thread.is_alive()
    (error,) = raised
    assert isinstance(error, ConnectionResetError)
    assert "the server is gone" in str(error)

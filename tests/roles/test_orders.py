"""The clock's channels to devices, in one process and between processes."""

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from testbed.roles.orders import Order, OrderChannel, OrderChannels, OrderKind
from testbed.training.exchange import Hears, Step, Suspects
from testbed.training.peer_bytes import Message


@pytest.fixture
def ends() -> Iterator[tuple[OrderChannel, OrderChannel]]:
    """Make a channel; yield the clock's end and the device's."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    clock, device = (OrderChannel(end) for end in pair)
    yield clock, device
    clock.close()
    device.close()


def forked(run: Callable[[], None]) -> int:
    """Call ``run`` in a process of its own, and return the process's id."""
    child = os.fork()
    if child:
        return child
    try:
        run()
    except BaseException:
        os._exit(1)
    os._exit(0)


def test_orders_come_one_by_one_in_their_order(ends: tuple[OrderChannel, OrderChannel]) -> None:
    clock, device = ends
    given = [
        (OrderKind.BEGIN, 0),
        (OrderKind.ARRIVED, 2**40),
        (OrderKind.FINISHED, 0),
        (OrderKind.ARRIVED, 3),
    ]
    for what, number in given:
        clock.give(what, number)
    assert [device.take() for _ in given] == [Order(what, number) for what, number in given]
    assert device.take(wait=False) is None


def test_taking_without_waiting_sees_what_is_there(ends: tuple[OrderChannel, OrderChannel]) -> None:
    clock, device = ends
    assert device.take(wait=False) is None
    clock.give(OrderKind.STOP)
    assert select.select([device], [], [], 1) == ([device], [], [])
    assert device.take(wait=False) == Order(OrderKind.STOP)


def test_reports_arrive_whole_and_in_order(ends: tuple[OrderChannel, OrderChannel]) -> None:
    clock, device = ends
    # As many messages as in a step of the largest mesh: more than a page, and more than 64 KiB.
    messages = [Message(peer, 10_000_000, 10_000_000) for peer in range(4000)]
    device.report(Step(7, 0, float("inf"), messages))
    device.report(Hears(3))
    heard = clock.hear()
    assert heard["base_version"] == 7
    assert heard["loss"] == float("inf")
    assert heard["messages"] == [list(message) for message in messages]
    assert clock.hear() == {"kind": "hears", "peer": 3}


def test_giving_orders_to_a_device_that_is_gone_is_no_error(
    ends: tuple[OrderChannel, OrderChannel],
) -> None:
    clock, device = ends
    device.close()
    clock.give(OrderKind.FINISHED)
    clock.give(OrderKind.STOP)


def test_a_device_notices_that_the_clock_is_gone(ends: tuple[OrderChannel, OrderChannel]) -> None:
    clock, device = ends
    clock.give(OrderKind.FINISHED)
    clock.close()
    assert device.take() == Order(OrderKind.FINISHED)  # an order given before still arrives
    with pytest.raises(ConnectionError, match="the virtual clock is gone"):
        device.take()
    with pytest.raises(OSError, match="Broken pipe"):
        device.report(Hears(1))


def test_giving_orders_waits_for_a_device_whose_queue_is_full(
    ends: tuple[OrderChannel, OrderChannel],
) -> None:
    clock, device = ends
    count = 5000

    def give() -> None:
        for number in range(count):
            clock.give(OrderKind.ARRIVED, number)

    giving = threading.Thread(target=give)
    giving.start()
    giving.join(0.2)
    assert giving.is_alive(), "the kernel had room for all"
    assert [device.take() for _ in range(count)] == [
        Order(OrderKind.ARRIVED, number) for number in range(count)
    ]
    giving.join(5)
    assert not giving.is_alive()


def test_giving_without_waiting_returns_false_if_the_queue_is_full(
    ends: tuple[OrderChannel, OrderChannel],
) -> None:
    clock, device = ends
    count = 0
    while clock.give(OrderKind.ARRIVED, count, wait=False):
        count += 1
    began = time.monotonic()
    clock.await_room(0.05)
    assert time.monotonic() - began >= 0.05
    assert [device.take() for _ in range(count)] == [
        Order(OrderKind.ARRIVED, number) for number in range(count)
    ]
    clock.await_room(60)
    assert clock.give(OrderKind.STOP, wait=False)
    assert device.take() == Order(OrderKind.STOP)


def test_each_forked_device_has_its_own_channel() -> None:
    leaves = OrderChannels(3)

    def answer(number: int) -> None:
        mine = leaves.of_device(number, OrderChannel)
        order = mine.take()
        assert order is not None
        mine.report(Suspects(number, order.number))
        assert mine.take() == Order(OrderKind.STOP)

    children = [forked(lambda number=number: answer(number)) for number in range(3)]  # type: ignore[misc]
    clocks = leaves.of_clock(OrderChannel)
    for number in (2, 0, 1):
        clocks[number].give(OrderKind.ARRIVED, 10 * number)
    for number, clock in enumerate(clocks):
        assert clock.hear() == {"kind": "suspects", "peer": number, "silent": 10 * number}
        clock.give(OrderKind.STOP)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    for clock in clocks:
        clock.close()


def test_devices_notice_when_the_clock_s_process_ends() -> None:
    """A device notices only if every other process has closed the clock's ends."""
    leaves = OrderChannels(2)
    ready, go = os.pipe()

    def be_the_clock() -> None:
        leaves.of_clock(OrderChannel)[1].give(OrderKind.BEGIN)
        os.read(ready, 1)

    def be_somebody_else() -> None:
        leaves.close()
        os.read(ready, 1)

    clock = forked(be_the_clock)
    evaluator = forked(be_somebody_else)
    device = leaves.of_device(1, OrderChannel)
    assert device.take() == Order(OrderKind.BEGIN)
    os.write(go, b"12")
    assert os.waitpid(clock, 0)[1] == os.waitpid(evaluator, 0)[1] == 0
    with pytest.raises(ConnectionError):
        device.take()
    device.close()
    os.close(ready)
    os.close(go)

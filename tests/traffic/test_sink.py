"""Datagrams that the kernel counts and throws away, in a network namespace of the test."""

import socket
import time

import pytest

from tests.traffic.isolation import isolated, real
from traffic.sink import Sink

HERE = "127.0.0.1"


def sender(port: int) -> socket.socket:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind((HERE, 0))
    own.connect((HERE, port))
    return own


def awaited(sink: Sink, count: int) -> int:
    deadline = time.monotonic() + 10
    while sink.count < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return sink.count


@real
def test_each_sender_is_counted_by_its_own_sink() -> None:
    def body() -> None:
        one, other, stranger = (sender(9) for _ in range(3))
        sinks = [Sink((HERE, 9), own.getsockname()) for own in (one, other)]
        for _ in range(3000):  # more than any buffer holds
            one.send(bytes(1400))
        for _ in range(20):
            other.send(b"")
        assert [awaited(sinks[0], 3000), awaited(sinks[1], 20)] == [3000, 20]
        with pytest.raises(ConnectionRefusedError):  # a port that nobody has answers as always
            for _ in range(100):
                stranger.send(b"x")
        assert [sink.count for sink in sinks] == [3000, 20]

    isolated(body)


@real
def test_the_kernel_s_counter_may_go_round() -> None:
    def body() -> None:
        own = sender(9)
        sink = Sink((HERE, 9), own.getsockname())
        own.send(b"x")
        assert awaited(sink, 1) == 1
        sink._before = (1 << 32) - 4  # as if so many had been there before
        assert sink.count == 1 + 5

    isolated(body)

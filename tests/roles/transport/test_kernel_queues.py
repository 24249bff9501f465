"""The shortest round trip of a connection, as the kernel has measured it."""

import socket
import struct

from testbed.roles.transport.kernel_queues import shortest_round_trip

_RTT = struct.Struct("68xI")
"""Of the kernel's tcp_info: tcpi_rtt, the smoothed round trip, in µs."""


def test_it_is_known_after_an_exchange_and_not_above_the_smoothed_one() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        for _ in range(20):
            one.sendall(b"x" * 1000)
            other.recv(1000, socket.MSG_WAITALL)
            other.sendall(b"y")
            one.recv(1)
        found = shortest_round_trip(one)
        smoothed = _RTT.unpack(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT.size))
    assert found is not None
    assert 0 < 1e6 * found <= smoothed[0] + 1


def test_there_is_none_before_a_connection_and_of_no_tcp() -> None:
    with socket.socket() as unconnected:
        assert shortest_round_trip(unconnected) is None
    with socket.socket(socket.AF_UNIX) as unix:
        assert shortest_round_trip(unix) is None

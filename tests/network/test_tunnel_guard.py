"""Packets of a run's tunnels from its own hosts and from strangers."""

import socket
import struct

import pytest

from testbed.network.tunnel_guard import TunnelGuard
from testbed.network.underlay import MOST_NETWORKS, PORT, Underlay
from testbed.nodes.linux import own_network
from tests.traffic.isolation import isolated, real

pytestmark = pytest.mark.exercises("namespaces")
HOST, STRANGER = "127.0.0.2", "127.0.0.3"
LINKS = 4
OPEN = 500
"""An identifier that is no run's: its packets are not looked at."""


def comes_through(receiver: socket.socket, source: str, number: int) -> bool:
    """Send a packet of a VXLAN identifier; return True if it is received.

    A busy kernel may deliver it later; a further packet, which nothing holds back, ends the wait.
    """
    mark = struct.pack(">II", 1 << 27, OPEN << 8)
    for address, packet in ((source, struct.pack(">II", 1 << 27, number << 8)), (HOST, mark)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((address, 0))
            sender.sendto(packet, receiver.getsockname())
    found = receiver.recv(100)
    return found != mark and receiver.recv(100) == mark


@real
@pytest.mark.parametrize("first", [1_000, MOST_NETWORKS - 2])
def test_a_runs_numbers_are_taken_from_its_own_hosts_only(first: int) -> None:
    own = [(first + link) % MOST_NETWORKS for link in range(LINKS)]
    others = [first - 1, (first + LINKS) % MOST_NETWORKS]

    def body() -> None:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tunnels,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as another_port,
        ):
            for receiver, port in ((tunnels, PORT), (another_port, PORT + 10)):
                receiver.bind(("127.0.0.1", port))
                receiver.settimeout(10)
            guard = TunnelGuard(
                Underlay(own_network(), "127.0.0.1", {"worker-0": HOST}, first), LINKS
            )
            for number in own:
                assert comes_through(tunnels, HOST, number)
                assert not comes_through(tunnels, STRANGER, number)
                assert comes_through(another_port, STRANGER, number)
            for number in others:  # of another run
                assert comes_through(tunnels, STRANGER, number)
            guard.close()
            for number in own:
                assert comes_through(tunnels, STRANGER, number)

    isolated(body)

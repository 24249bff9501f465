"""The way between two hosts, measured over an underlay whose rates and MTU are known."""

import threading

import pytest
from pyroute2 import IPRoute

from testbed.network.links import Shape
from testbed.network.netlink import Requests
from testbed.network.shaping import packed_egress
from testbed.network.underlay import PORT
from testbed.nodes.linux import inside_network
from testbed.orchestrator.hosts.host_paths import answer, measured
from testbed.orchestrator.hosts.inquiries import (
    HostClock,
    MeasurePath,
    OpenPath,
    PathMeasured,
    PathOpened,
    ask,
)
from testbed.orchestrator.hosts.path_datagrams import SHARE_OF_TCP
from testbed.orchestrator.hosts.secured_connection import ConnectionLostError, SecuredConnection
from tests.network.test_underlay import ADDRESSES, joined_hosts
from tests.orchestrator.hosts.test_secured_connection import SECRET, proven
from tests.traffic.isolation import isolated, real


def answered_at(namespace: int, called: SecuredConnection) -> threading.Thread:
    """Answer the inquiries of a connection from a host, until it ends."""

    def serve() -> None:
        with inside_network(namespace):
            try:
                while True:
                    for frame in called.receive():
                        answer(called, frame, SECRET)
            except ConnectionLostError:
                called.socket.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@real
@pytest.mark.exercises("namespaces")
def test_a_way_has_the_rates_and_the_mtu_of_the_underlay() -> None:
    def body() -> None:
        hosts = joined_hosts()
        for host, rate in zip(hosts, (40_000_000, 20_000_000), strict=True):
            with inside_network(host), IPRoute() as netlink:
                (index,) = netlink.link_lookup(ifname="up")
                netlink.link("set", index=index, mtu=1400)
                requests = Requests()
                requests.shape(index, packed_egress(Shape(rate)))
                requests.carry_out()
                requests.close()
        caller, called = proven(SECRET, SECRET)
        assert isinstance(caller, SecuredConnection)
        assert isinstance(called, SecuredConnection)
        thread = answered_at(hosts[1], called)

        def opened() -> int:
            return ask(caller, OpenPath(ADDRESSES[1]), PathOpened).port

        port = opened()
        with inside_network(hosts[0]):
            with pytest.raises(ConnectionLostError, match="secrets may differ"):
                measured(MeasurePath(*ADDRESSES, port, 0.0, PORT), b"another secret...")
            way = measured(MeasurePath(*ADDRESSES, port, 1.0, PORT), SECRET)
        assert way.mtu == 1400
        assert way.there == pytest.approx(40e6 * 1348 / 1414, rel=0.1)
        assert way.back == pytest.approx(20e6 * 1348 / 1414, rel=0.1)
        for passed, tcp in zip(way.datagrams, (way.there, way.back), strict=True):
            assert tcp is not None  # a busy host may send more slowly, but loses nothing
            assert 0.5 < passed["rate"] / (SHARE_OF_TCP * tcp) < 1.05
            assert passed["arrived"] >= 0.99 * passed["sent"]
        assert 0 < way.round_trip < 0.1
        assert abs(way.clock_behind) <= way.clock_error  # it is the same clock
        # What cannot be measured from there is answered, and the connection stays.
        nowhere = MeasurePath(ADDRESSES[1], ADDRESSES[0], 1, 0.0, PORT)
        with pytest.raises(ConnectionLostError, match="no TCP connection from"):
            ask(caller, nowhere, PathMeasured)
        clock = HostClock.of(caller)
        assert abs(clock.behind) <= clock.error
        caller.socket.close()
        thread.join(20)
        assert not thread.is_alive()

    isolated(body)

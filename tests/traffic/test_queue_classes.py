"""Counters of many classes at once, against a meter of each."""

import socket

import pytest
from pyroute2 import IPRoute

from testbed.network.shaping import COUNTED, UNCOUNTED
from tests.traffic.isolation import count, isolated, real, send_datagrams, two_hosts
from traffic import TrafficError
from traffic.counters import Meter
from traffic.queue_classes import AT_ONCE, read_classes


@real
def test_all_classes_are_read_in_the_order_asked_for() -> None:
    def body() -> None:
        two_hosts()
        near = socket.if_nametoindex("near")
        count(near)
        with IPRoute() as netlink:
            many = []
            for number in range(AT_ONCE + 5):
                netlink.link("add", ifname=f"more{number}", kind="veth")
                many.append(socket.if_nametoindex(f"more{number}"))
                count(many[-1])
        send_datagrams(100, (1000,))
        asked = [(one, COUNTED) for one in many] + [(near, COUNTED), (near, UNCOUNTED)]
        *idle, counted, apart = read_classes(asked)
        assert set(idle) == {(0, 0, 0)} and apart == (0, 0, 0)
        assert counted == (100 * 1042, 100, 0)
        meter = Meter(near, COUNTED).read()
        assert counted == (meter.class_bytes, meter.class_frames, meter.class_dropped)
        assert read_classes([]) == []

    isolated(body)


@real
def test_a_class_that_does_not_exist_is_an_error() -> None:
    def body() -> None:
        two_hosts()
        near = socket.if_nametoindex("near")
        with pytest.raises(TrafficError, match=rf"class 0x10010 of interface {near} cannot"):
            read_classes([(near, COUNTED)])

    isolated(body)

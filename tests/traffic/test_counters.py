"""Counters of interfaces and classes, against pyroute2 and against the datagrams that were sent."""

import socket
import time

import pytest
from pyroute2 import IPRoute

from testbed.network.shaping import COUNTED, UNCOUNTED
from testbed.nodes.linux import inside_network
from tests.traffic.isolation import count, isolated, real, send_datagrams, two_hosts
from traffic import TrafficError
from traffic.counters import COUNTS, Meter, read_all


@real
def test_a_meter_reads_the_same_counters_as_pyroute2() -> None:
    def body() -> None:
        far = two_hosts()
        index = socket.if_nametoindex("near")
        count(index)
        with IPRoute() as netlink:
            meter = Meter(index, COUNTED)
            before = read_all([meter])[0]
            assert before["class_frames"] == 0
            send_datagrams(500, (100, 1000))
            time.sleep(0.1)
            began = time.monotonic()
            (after,) = read_all([meter])
            assert began <= after["time"] <= time.monotonic()
            assert after["class_frames"] - before["class_frames"] == 500
            assert after["class_bytes"] - before["class_bytes"] == 500 * (550 + 42)
            assert after["tx_packets"] - before["tx_packets"] == 500
            (link,) = netlink.get_links(index=index)
            statistics = link.get_attr("IFLA_STATS64")
            for name in ("packets", "bytes", "dropped"):
                for way in ("rx", "tx"):
                    assert after[f"{way}_{name}"] == statistics[f"{way}_{name}"]
            (one,) = [c for c in netlink.get_classes(index) if c["handle"] == COUNTED]
            told = one.get_attr("TCA_STATS2")
            basic, queue = told.get_attr("TCA_STATS_BASIC"), told.get_attr("TCA_STATS_QUEUE")
            assert (after["class_bytes"], after["class_frames"]) == (
                basic["bytes"],
                basic["packets"],
            )
            assert after["class_dropped"] == queue["drops"]
            assert after["class_overlimits"] == queue["overlimits"]
            assert (after["backlog_bytes"], after["backlog_packets"]) == (
                queue["backlog"],
                queue["qlen"],
            )
        with inside_network(far):
            other_side = Meter(socket.if_nametoindex("far"), None)
        (there,) = read_all([other_side])
        assert there.dtype == COUNTS
        assert there["rx_packets"] >= 500
        assert there["class_bytes"] == there["backlog_packets"] == -1

    isolated(body)


@real
def test_a_full_queue_shows_its_backlog_and_its_drops() -> None:
    """The class has 64 kbit/s, and its queue has room for 10 packets."""

    def body() -> None:
        two_hosts()
        index = socket.if_nametoindex("near")
        with IPRoute() as netlink:
            netlink.tc("add", "htb", index, 0x10000, default=0x10)
            netlink.tc("add-class", "htb", index, COUNTED, parent=0x10000, rate=8000, burst=2000)
            netlink.tc("add", "pfifo", index, 0x20000, parent=COUNTED, limit=10)
            meter = Meter(index, COUNTED)
            send_datagrams(40, (958,))
            (row,) = read_all([meter])
            assert row["class_overlimits"] > 0
            assert 0 < row["backlog_packets"] <= 10
            assert row["backlog_bytes"] == row["backlog_packets"] * 1000
            gone = row["class_frames"] + row["backlog_packets"]
            assert row["class_dropped"] == 40 - gone > 0

    isolated(body)


@real
def test_a_missing_interface_or_class_is_reported() -> None:
    def body() -> None:
        two_hosts()
        index = socket.if_nametoindex("near")
        with pytest.raises(TrafficError, match="interface 99 cannot be read: No such device"):
            Meter(99, None).read()
        with pytest.raises(TrafficError, match=r"class 0x10010 of interface \d+ cannot be read"):
            Meter(index, COUNTED).read()
        count(index)
        with IPRoute() as netlink:
            meter = Meter(index, UNCOUNTED)
            meter.read()
            netlink.link("del", index=index)
        with pytest.raises(TrafficError, match="No such device"):
            meter.read()

    isolated(body)


@real
def test_a_meter_may_count_from_now_on() -> None:
    def body() -> None:
        two_hosts()
        index = socket.if_nametoindex("near")
        count(index)
        send_datagrams(30)
        whole = Meter(index, COUNTED)
        for handle in (COUNTED, None):
            meter, before = Meter(index, handle, from_now=True), whole.read()
            assert meter.read()[1:7] == (0,) * 6
            send_datagrams(20)
            rows, after = read_all([meter]), whole.read()
            for name in ("tx_packets", "tx_bytes"):
                at = COUNTS.names.index(name)  # type: ignore[union-attr]
                assert rows[name][0] == after[at] - before[at] > 0
            (row,) = rows
            counted = (20, 20 * 142) if handle else (-1, -1)
            assert (row["class_frames"], row["class_bytes"]) == counted
            assert row["backlog_packets"] == (0 if handle else -1)

    isolated(body)

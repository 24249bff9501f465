"""Real transfers over a real link: capture, class counter and tshark agree."""

import shutil
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from pyroute2 import IPRoute
from scapy.utils import RawPcapWriter

from testbed.network.shaping import COUNTED
from testbed.nodes.linux import inside_network
from tests.traffic.isolation import (
    FAR,
    NEAR,
    ForkedCapturing,
    count,
    isolated,
    offload_off,
    real,
    transfer,
    two_hosts,
)
from tests.traffic.packets import frame, network, segment
from traffic.accounting import Account, account
from traffic.counters import Meter

SIZE = 1_500_000
tshark_needed = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def counting(interface: str) -> Meter:
    index = socket.if_nametoindex(interface)
    count(index)
    return Meter(index, COUNTED)


def from_side(found: Account, addresses: set[str], quantity: str) -> int:
    return sum(
        int(row[quantity]) for row in found.seconds if found.pairs[int(row["pair"])][0] in addresses
    )


def fields(path: Path, *names: str) -> list[list[str]]:
    """Return a row of fields for each packet, as tshark reads them."""
    asked = [part for name in names for part in ("-e", name)]
    output = subprocess.run(
        ["tshark", "-nr", str(path), "-T", "fields", "-E", "occurrence=f", *asked],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [line.split("\t") for line in output.splitlines()]


@real
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("offload", [True, False])
def test_a_capture_agrees_with_the_class_counter(
    tmp_path: Path, version: int, offload: bool
) -> None:
    file = tmp_path / "link.pcapng"

    def body() -> None:
        far = two_hosts()
        with inside_network(far):
            if not offload:
                offload_off("far")
            back = counting("far")
        if not offload:
            offload_off("near")
        there = counting("near")
        capturing = ForkedCapturing(file)
        before = [meter.read() for meter in (there, back)]
        transfer(far, version, SIZE)
        time.sleep(0.3)
        counted = [meter.read() for meter in (there, back)]
        assert capturing.stop()["complete"]
        afterwards = [meter.read() for meter in (there, back)]
        found = account([file])
        assert found.dropped == 0
        for column, quantity in ((7, "wire_bytes"), (8, "frames")):
            passed = [new[column] - old[column] for new, old in zip(counted, before, strict=True)]
            # A host may report a group membership while the capture is being stopped: such a frame
            # may be in the capture or not. Without such frames this is an equality.
            late = [new[column] - old[column] for new, old in zip(afterwards, counted, strict=True)]
            assert sum(passed) <= found.totals[quantity] <= sum(passed) + sum(late)
            # Either host may report one before it has an address.
            nobody = from_side(found, {"::"}, quantity)
            for i, (addresses, name) in enumerate(((NEAR, "near"), (FAR, "far"))):
                side = from_side(found, {*addresses.values(), mac(name, far)}, quantity)
                assert side - late[i] <= passed[i] <= side + nobody
        assert from_side(found, set(NEAR.values()), "stream_bytes") == SIZE
        assert from_side(found, set(FAR.values()), "stream_bytes") == 0
        assert sum(found.flows["missing_bytes"]) == 0
        assert found.flows["opened"].all() and found.flows["closed"].all()
        assert found.assumed == 0
        if offload:
            assert found.totals["records"] < found.totals["frames"] / 4
        else:
            assert found.totals["records"] == found.totals["frames"]

    isolated(body)
    if shutil.which("tshark"):
        like_tshark(file)


def mac(interface: str, far: int) -> str:
    def read() -> str:
        with IPRoute() as netlink:
            (link,) = netlink.get_links(index=socket.if_nametoindex(interface))
            return str(link.get_attr("IFLA_ADDRESS"))

    if interface == "near":
        return read()
    with inside_network(far):
        return read()


def like_tshark(path: Path) -> None:
    """Check packets and payload by pair of addresses, and TCP flags, against tshark."""
    found = account([path])
    records: Counter[tuple[str, str]] = Counter()
    payload: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    for row in fields(
        path,
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "eth.src",
        "eth.dst",
        "frame.len",
        "tcp.len",
    ):
        pair = (row[0] or row[2] or row[4], row[1] or row[3] or row[5])
        records[pair] += 1
        size[pair] += int(row[6])
        payload[pair] += int(row[7] or 0)
    for number, pair in enumerate(found.pairs):
        mine = found.seconds[found.seconds["pair"] == number]
        assert int(mine["records"].sum()) == records.pop(pair)
        flows = found.flows[found.flows["pair"] == number]
        if not int(flows["retransmitted_bytes"].sum()):
            assert int(flows["stream_bytes"].sum()) == payload[pair]
        if int(mine["records"].sum()) == int(mine["frames"].sum()):
            assert int(mine["wire_bytes"].sum()) == size[pair]
    assert not records
    flags = fields(path, "tcp.flags.syn", "tcp.flags.fin", "tcp.flags.reset")
    assert int(found.flows["opened"].sum()) == sum(row[0] in ("1", "True") for row in flags)
    assert bool(found.flows["closed"].any()) == any(row[1] in ("1", "True") for row in flags)
    assert bool(found.flows["reset"].any()) == any(row[2] in ("1", "True") for row in flags)


@tshark_needed
def test_retransmissions_are_those_that_tshark_finds(tmp_path: Path) -> None:
    """The definitions agree where a whole segment is sent again.

    If only a part of a segment was seen before, tshark calls all of it a retransmission, and we only
    that part. If a segment that was lost before the capture comes late, tshark calls it "out of order"
    or a "retransmission" by the time that has passed, and we count it as new.
    """
    packets: list[bytes] = []

    def say(source: str, sequence: int, flags: str, size: int = 0, ack: int = 0) -> None:
        tcp = segment(source, 5000, sequence, flags, [("MSS", 1460)] if "S" in flags else [])
        tcp.ack = ack
        packets.append(
            frame(source, 0, network(4, source, False, False) / tcp / bytes(size), 0x0800)
        )

    say("a", 100, "S")
    say("b", 900, "SA", 0, 101)
    say("a", 101, "A", 0, 901)
    for i in range(20):
        say("a", 101 + 1000 * i, "A", 1000, 901)
    for i in (3, 7, 8):
        say("a", 101 + 1000 * i, "A", 1000, 901)
    say("b", 901, "A", 0, 20_101)
    for i in (3, 19):  # all bytes were acknowledged: "spurious"
        say("a", 101 + 1000 * i, "A", 1000, 901)
    path = tmp_path / "again.pcap"
    writer = RawPcapWriter(str(path), linktype=1)
    writer.write_header(None)
    for i, raw in enumerate(packets):
        # A round trip of 2 µs: with a longer one, tshark calls the repetitions "out of order".
        time_of = (1_700_000_000, i) if i < 3 else (1_700_000_000 + i, 0)
        writer.write_packet(raw, *time_of, len(raw), len(raw))
    writer.close()
    names = [f"tcp.analysis.{n}retransmission" for n in ("", "fast_", "spurious_")]
    again = sum(
        int(row[0]) for row in fields(path, "tcp.len", *names) if any(cell for cell in row[1:])
    )
    found = account([path])
    assert again == 5000
    assert found.totals["retransmitted_bytes"] == again + 5 * 54
    assert found.totals["stream_bytes"] == 20_000
    like_tshark(path)

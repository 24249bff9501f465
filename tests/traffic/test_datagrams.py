"""UDP by ports, against a count made packet by packet from scapy's dissection."""

import json
import random
import socket
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    fragment6,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import RawPcapWriter

from testbed.nodes.linux import inside_network
from tests.traffic.isolation import FAR, NEAR, ForkedCapturing, isolated, real, two_hosts
from traffic import chunks, datagrams
from traffic.accounting import Account, account
from traffic.cli import main

HOSTS = {4: ("10.0.0.1", "10.0.0.2"), 6: ("fd00::1", "fd00::2")}
Key = tuple[str, str, int, int]


def write(path: Path, raws: list[bytes], kept: int = 65535) -> None:
    with RawPcapWriter(str(path), linktype=1) as writer:
        writer.write_header(None)
        for raw in raws:
            writer.write_packet(raw[:kept], 1, 1, min(kept, len(raw)), len(raw))


def rows(found: Account) -> dict[Key, tuple[int, int, int]]:
    return {
        (*found.pairs[row["pair"]], int(row["source_port"]), int(row["destination_port"])): (
            int(row["frames"]),
            int(row["wire_bytes"]),
            int(row["payload_bytes"]),
        )
        for row in found.datagrams
    }


def drawn(chance: random.Random) -> list[bytes]:
    """Return datagrams of few ports, whole and in fragments, with tags and extension headers."""
    raws = []
    for _ in range(60):
        version, way = chance.choice((4, 6)), chance.choice((1, -1))
        source, destination = HOSTS[version][::way]
        size = chance.choice((0, 1, 100, 1400, 4000))
        ports = chance.choice((53, 5000)), chance.choice((53, 9))
        layer: Packet = UDP(sport=ports[0], dport=ports[1]) / Raw(bytes(size))
        if chance.random() < 0.1:
            layer = TCP(sport=ports[0], dport=ports[1]) / Raw(bytes(size))
        if version == 4:
            pieces: list[Packet] = [IP(src=source, dst=destination) / layer]
            if size > 1000:
                pieces = fragment(pieces[0], 700)  # type: ignore[no-untyped-call]
        else:
            head: Packet = IPv6(src=source, dst=destination)
            if chance.random() < 0.3:
                head = head / IPv6ExtHdrHopByHop()
            pieces = [head / layer]
            if size > 1000 or chance.random() < 0.2:
                inner = head / IPv6ExtHdrFragment() / layer
                pieces = [inner]
                if size > 1000:
                    pieces = fragment6(inner, 700)  # type: ignore[no-untyped-call]
            elif chance.random() < 0.2:
                pieces = [head / IPv6ExtHdrDestOpt() / layer]
        chance.shuffle(pieces)
        for piece in pieces:
            link: Packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
            link = link / Dot1Q(vlan=5) if chance.random() < 0.2 else link
            raws.append(bytes(link / piece))
    return raws


def expected(raws: list[bytes], kept: int) -> dict[Key, tuple[int, int, int]]:
    """Count the datagrams whose headers were kept."""
    sums: Counter[tuple[Key, int]] = Counter()
    for raw in raws:
        packet = Ether(raw)
        ip = packet[IP] if IP in packet else packet[IPv6]
        begin = len(raw) - len(bytes(ip))
        rest, ports = b"", (0, 0)
        if IP in packet:
            later = ip.frag
            rest, protocol = bytes(ip.payload), ip.proto
        else:
            later, protocol, inner = 0, ip.nh, ip.payload
            while not isinstance(inner, UDP | TCP | Raw) and protocol in (0, 44, 60):
                if protocol == 44:
                    later = inner.offset
                protocol, rest, inner = inner.nh, bytes(inner.payload), inner.payload
            rest = rest or bytes(ip.payload)
        headers = len(bytes(ip)) - len(rest)
        if protocol != 17 or begin + headers + (0 if later else 8) > kept:
            continue
        payload = len(rest)
        if not later:
            ports = (int.from_bytes(rest[:2], "big"), int.from_bytes(rest[2:4], "big"))
            payload -= 8
        key = (ip.src, ip.dst, *ports)
        for i, number in enumerate((1, len(raw), payload)):
            sums[key, i] += number
    return {key: (sums[key, 0], sums[key, 1], sums[key, 2]) for key, _ in sums}


@pytest.mark.parametrize("seed", range(20))
def test_datagrams_are_counted_as_scapy_reads_them(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    raws = drawn(chance)
    kept = chance.choice((65535, 128, 70, 62, 50, 42, 40))
    write(tmp_path / "packets", raws, kept)
    monkeypatch.setattr(chunks, "CHUNK", chance.choice((64, 5000, chunks.CHUNK)))
    monkeypatch.setattr(datagrams, "_PENDING", chance.choice((3, 10**6)))
    found = account([tmp_path / "packets"])
    assert rows(found) == expected(raws, kept)
    assert int(found.datagrams["wire_bytes"].sum()) <= found.totals["other_bytes"]
    order = found.datagrams[["pair", "source_port", "destination_port"]]
    assert np.array_equal(order, np.sort(order))


def test_contradictory_lengths_and_garbage_are_no_datagrams(tmp_path: Path) -> None:
    whole = bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / b"12345")
    bad = [whole[:38] + length.to_bytes(2, "big") + whole[40:] for length in (0, 7, 14, 65535)]
    write(tmp_path / "packets", [whole, *bad])
    found = account([tmp_path / "packets"])
    assert rows(found) == {("10.0.0.1", "10.0.0.2", 1, 2): (1, 47, 5)}
    chance = random.Random(1)
    for number in range(50):
        if number % 5 == 0:  # to draw them takes longer than to damage and to read them
            sound = drawn(chance)
        raws = []
        for raw in sound:
            damaged = bytearray(raw)
            for _ in range(3):
                damaged[chance.randrange(12, min(len(raw), 80))] = chance.randrange(256)
            raws.append(bytes(damaged))
        write(tmp_path / "packets", raws, chance.choice((60, 128, 65535)))
        found = account([tmp_path / "packets"])
        assert (found.datagrams["payload_bytes"] >= 0).all()
        assert (found.datagrams["payload_bytes"] <= found.datagrams["wire_bytes"]).all()
        assert int(found.datagrams["wire_bytes"].sum()) <= found.totals["other_bytes"]


def test_a_cut_file_has_the_datagrams_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "packets"
    raw = bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / b"12345")
    write(path, [raw] * 10)
    path.write_bytes(path.read_bytes()[:-3])
    found = account([path])
    assert found.damage
    assert rows(found) == {("10.0.0.1", "10.0.0.2", 1, 2): (9, 9 * 47, 45)}


def test_the_command_line_shows_udp_by_ports_if_there_is_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def summarize(*options: str) -> str:
        with pytest.raises(SystemExit, match=r"^0$"):
            main(["summarize", *options, str(path)])
        return capsys.readouterr().out

    path = tmp_path / "packets"
    ip = IP(src="10.0.0.1", dst="10.0.0.2")
    write(path, [bytes(Ether() / ip / UDP(sport=5353, dport=53) / b"12345")] * 3)
    (row,) = json.loads(summarize("--json"))["udp"]
    assert row == {
        "source": "10.0.0.1",
        "destination": "10.0.0.2",
        "source_port": 5353,
        "destination_port": 53,
        "frames": 3,
        "wire_bytes": 141,
        "payload_bytes": 15,
    }
    lines = summarize("--connections").splitlines()
    assert lines[-1].split() == ["10.0.0.1", "5353", "10.0.0.2", "53", "3", "141", "15"]
    assert "UDP" not in summarize()
    write(path, [bytes(Ether() / ip / TCP() / b"12345")])
    assert "udp" not in json.loads(summarize("--json"))
    assert "UDP" not in summarize("--connections")


@real
def test_real_datagrams_and_their_fragments(tmp_path: Path) -> None:
    def body() -> None:
        far = two_hosts()
        file = tmp_path / "link.pcapng"
        with inside_network(far):
            receivers = [
                socket.socket(family, socket.SOCK_DGRAM)
                for family in (socket.AF_INET, socket.AF_INET6)
            ]
        capturing = ForkedCapturing(file)
        for version, receiver in zip((4, 6), receivers, strict=True):
            receiver.bind((FAR[version], 7000))
            with socket.socket(receiver.family, socket.SOCK_DGRAM) as sender:
                sender.bind((NEAR[version], 7001))
                for size in (0, 100, 5000):
                    sender.sendto(bytes(size), (FAR[version], 7000))
                    assert len(receiver.recv(6000)) == size
        time.sleep(0.2)
        assert capturing.stop()["complete"]
        found = rows(account([file]))
        for version, head in ((4, 14 + 20), (6, 14 + 40 + 8)):
            pair = NEAR[version], FAR[version]
            first = (1500 - (head - 14)) // 8 * 8
            whole = 2 * ({4: 34, 6: 54}[version] + 8) + 100
            later = 5008 - first
            assert found[(*pair, 7001, 7000)] == (3, whole + head + first, 100 + first - 8)
            assert found[(*pair, 0, 0)] == (3, 3 * head + later, later)

    isolated(body)


def test_datagrams_to_a_port_are_counted_apart(tmp_path: Path) -> None:
    one, other = HOSTS[4]

    def frame(source: str, to: str, layer: Packet) -> bytes:
        return bytes(Ether() / IP(src=source, dst=to) / layer)

    apart = [
        frame(one, other, UDP(sport=5000 + i % 2, dport=9) / Raw(bytes(100))) for i in range(5)
    ]
    apart += [frame(other, one, UDP(sport=5000, dport=9) / Raw(bytes(30)))]
    others = [
        frame(one, other, UDP(sport=9, dport=5000) / Raw(bytes(100))),
        frame(one, other, TCP(sport=5000, dport=9) / Raw(bytes(10))),
        frame(other, one, UDP(sport=1, dport=2)),
    ]
    write(tmp_path / "packets", [*others[:2], *apart, others[2]])
    plain, found = account([tmp_path / "packets"]), account([tmp_path / "packets"], apart=[9])
    assert not plain.apart and found.totals == plain.totals

    def wire(numbers: set[int]) -> int:
        rows = found.seconds[np.isin(found.seconds["pair"], list(numbers))]
        return int(rows["wire_bytes"].sum())

    assert {found.pairs[number] for number in found.apart} == {(one, other), (other, one)}
    assert wire(set(found.apart)) == sum(map(len, apart))
    assert wire(set(range(len(found.pairs))) - found.apart) == sum(map(len, others))
    ports = [row["destination_port"] for row in found.datagrams if row["pair"] in found.apart]
    assert ports == [9] * 3
    assert rows(found) == rows(plain)

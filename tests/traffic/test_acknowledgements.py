"""Counting pure ACKs in batches of captured packets, which are made with scapy."""

from typing import Any

import numpy as np
from scapy.layers.inet import IP, TCP, UDP, IPOption
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from traffic.acknowledgements import PureAcks
from traffic.packet_ring import Packets

TO = "10.77.0.1"
SACK = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2)), ("SAck", (5, 9))]


def batch(frames: list[bytes], snap_length: int = 96) -> Packets:
    data = np.full((len(frames), snap_length), 255, np.uint8)
    for row, frame in zip(data, frames, strict=True):
        kept = frame[:snap_length]
        row[: len(kept)] = np.frombuffer(kept, np.uint8)
    length = np.array([len(frame) for frame in frames], np.uint32)
    return Packets(np.zeros(len(frames), np.int64), length, length.clip(max=snap_length), data)


def frame(flags: str, size: int = 0, to: str = TO, **more: Any) -> bytes:
    options = more.pop("options", [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))])
    tcp = TCP(sport=1, dport=7077, flags=flags, options=options)
    return bytes(Ether() / IP(src="10.77.0.9", dst=to, **more) / tcp / Raw(bytes(size)))


def test_only_pure_acks_are_counted() -> None:
    counts = PureAcks(TO)
    counts.add(batch([frame("A"), frame("A", options=SACK), frame("AE"), frame("A", options=[])]))
    assert counts.count == 4
    others = [
        frame("A", 1),
        frame("PA", 1000),
        frame("S"),
        frame("SA"),
        frame("FA"),
        frame("RA"),
        frame("A", to="10.77.0.3"),
        bytes(Ether() / IP(dst=TO) / UDP() / Raw(bytes(60))),
        bytes(Ether(type=0x88B5) / Raw(bytes(80))),
        frame("A", frag=10),
        frame("A", options=[])[:40],
    ]
    counts.add(batch(others))
    assert counts.count == 4
    counts.add(batch([frame("A")], snap_length=40))
    assert counts.count == 4  # too little was kept to tell


def test_packets_with_ip_options_are_left_out() -> None:
    counts = PureAcks(TO)
    counts.add(batch([frame("A", options=[])]))
    with_option = Ether() / IP(dst=TO, options=[IPOption(b"\x01\x01\x01\x00")]) / TCP(flags="A")
    counts.add(batch([bytes(with_option)]))
    assert counts.count == 1

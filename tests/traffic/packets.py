"""Packets made with scapy, and an account of them, made one by one from scapy's dissection.

This is the slow and plain counterpart of ``traffic.accounting`` and uses nothing of that package.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PadN,
)
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

MAC = {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}
ADDRESS = {(4, "a"): "10.0.0.1", (4, "b"): "10.0.0.2", (6, "a"): "fd00::1", (6, "b"): "fd00::2"}
TIMESTAMPS = ("Timestamp", (1, 2))


@dataclass(frozen=True)
class Sent:
    """A packet: its bytes in full, and how many of them are captured."""

    raw: bytes
    kept: int
    time: int

    @property
    def captured(self) -> bytes:
        return self.raw[: self.kept]


def ends(source: str) -> tuple[str, str]:
    return (source, "b" if source == "a" else "a")


def frame(source: str, tags: int, payload: Packet, protocol: int) -> bytes:
    """Make an Ethernet frame with up to two VLAN tags, padded to 60 bytes."""
    near, far = ends(source)
    packet = Ether(src=MAC[near], dst=MAC[far], type=(protocol, 0x8100, 0x88A8)[tags])
    if tags == 2:
        packet /= Dot1AD(vlan=7, type=0x8100)
    if tags:
        packet /= Dot1Q(vlan=5, type=protocol)
    return bytes(packet / payload).ljust(60, b"\0")


def network(version: int, source: str, extended: bool, pieces: bool) -> Packet:
    """Make an IP header, with options or extension headers, or that of a fragment."""
    near, far = (ADDRESS[version, end] for end in ends(source))
    packet: Packet
    if version == 4:
        packet = IP(src=near, dst=far, flags="MF" if pieces else 0)
        if extended:
            packet.options = [b"\x94\x04\0\0", b"\x01\x01\x01\x01"]  # router alert, no operation
        return packet
    packet = IPv6(src=near, dst=far)
    if extended:
        packet /= IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)])
        packet /= IPv6ExtHdrRouting(type=0, segleft=0) / IPv6ExtHdrDestOpt()
    if pieces:
        packet /= IPv6ExtHdrFragment(offset=0, m=1)
    return packet


def segment(source: str, port: int, sequence: int, flags: str, options: list[object]) -> Packet:
    ports = (port, 80) if source == "a" else (80, port)
    return TCP(sport=ports[0], dport=ports[1], seq=sequence % 2**32, flags=flags, options=options)


def other(kind: str, source: str, version: int, size: int) -> tuple[Packet, int]:
    """Make a packet that is not TCP, to follow an Ethernet header; return it and its protocol."""
    near, far = (ADDRESS[version, end] for end in ends(source))
    if kind == "arp":
        return ARP(psrc=ADDRESS[4, source], pdst="10.0.0.9"), 0x0806
    if kind == "lldp":
        return Raw(b"\x02" * size), 0x88CC
    if version == 4:
        body = UDP(sport=80, dport=9) if kind == "udp" else ICMP()
        return IP(src=near, dst=far) / body / Raw(b"x" * size), 0x0800
    bodies = {"udp": UDP(sport=80, dport=9) / Raw(b"x" * size), "echo": ICMPv6EchoRequest()}
    bodies |= {"solicit": ICMPv6ND_NS(tgt=far), "advertise": ICMPv6ND_NA(tgt=near)}
    return IPv6(src=near, dst=far) / bodies[kind], 0x86DD


@dataclass
class Direction:
    """One direction of a TCP connection."""

    opened: bool
    initial: int
    segment: int
    limit: int | None = None
    last: tuple[int, int] = (0, 0)
    seen: set[int] = field(default_factory=set)


class Count:
    """An account: ``sums`` by source and destination; wire bytes by second, too, in ``seconds``."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.seconds: dict[tuple[int, str, str], int] = defaultdict(int)
        self.missing = 0
        self._directions: dict[tuple[str, str, int, int], Direction] = {}
        self._ended: list[Direction] = []

    def take(self, sent: Sent) -> None:
        pair, quantities = self._examine(sent)
        quantities |= {"records": 1}
        for name, number in quantities.items():
            self.sums[pair][name] += number
        self.seconds[sent.time // 10**9, *pair] += quantities["wire_bytes"]

    def finish(self) -> None:
        for one in [*self._ended, *self._directions.values()]:
            self.missing += max(one.seen, default=-1) + 1 - len(one.seen)

    def _examine(self, sent: Sent) -> tuple[tuple[str, str], dict[str, int]]:
        length, kept = len(sent.raw), sent.kept
        packet = Ether(sent.raw)
        pair = (packet.src, packet.dst) if kept >= 14 else ("00:00:00:00:00:00",) * 2
        rest = {"frames": 1, "wire_bytes": length}
        place, layer = 14, packet.payload
        while isinstance(layer, (Dot1Q, Dot1AD)):
            place, layer = place + 4, layer.payload
        if isinstance(layer, ARP) and kept >= place:
            return pair, rest | {"arp_bytes": length}
        if isinstance(layer, IPv6) and not layer.plen:
            # As before segmentation, when a packet may be too long for the field; scapy would see
            # nothing after the header.
            rest_of = len(sent.raw) - place - 40
            layer = IPv6(sent.raw[place : place + 4] + rest_of.to_bytes(2) + sent.raw[place + 6 :])
        head = {IP: 20, IPv6: 40}.get(type(layer))
        if head is None or kept < place + head:
            return pair, rest | {"other_bytes": length}
        pair = (layer.src, layer.dst)
        base = place + head
        place += layer.ihl * 4 if isinstance(layer, IP) else 40
        fragment = isinstance(layer, IP) and (layer.flags.MF or layer.frag)
        layer = layer.payload
        while type(layer).__name__.startswith("IPv6ExtHdr"):
            fragment |= isinstance(layer, IPv6ExtHdrFragment)
            if kept < place + 8:
                return pair, rest | {"other_bytes": length}
            place += len(layer) - len(layer.payload)
            layer = layer.payload
        if isinstance(layer, (ICMPv6ND_NS, ICMPv6ND_NA)) and kept > place:
            return pair, rest | {"arp_bytes": length}
        if fragment or not isinstance(layer, TCP) or kept < place + 20:
            return pair, rest | {"other_bytes": length}
        return pair, self._tcp(pair, layer, length, place - base, kept - place)

    def _tcp(
        self, pair: tuple[str, str], tcp: Packet, length: int, extended: int, kept: int
    ) -> dict[str, int]:
        payload = len(tcp.original) - tcp.dataofs * 4
        direction = self._direction(pair, tcp, kept)
        room = direction.segment - extended - (tcp.dataofs * 4 - 20)
        frames = max(1, -(-payload // room))
        wire = length + (frames - 1) * (length - payload)
        result = {"frames": frames, "wire_bytes": wire}
        if not payload:
            says = any(flag in str(tcp.flags) for flag in "SFR")
            return result | {"connection_bytes" if says else "ack_bytes": wire}
        start = self._place(direction, tcp.seq + ("S" in str(tcp.flags)))
        fresh = {b for b in range(start, start + payload) if b >= 0} - direction.seen
        direction.seen |= fresh
        if not fresh:
            return result | {"retransmitted_bytes": wire}
        return result | {
            "stream_bytes": len(fresh),
            "header_bytes": wire - payload,
            "retransmitted_bytes": payload - len(fresh),
        }

    def _place(self, direction: Direction, sequence: int) -> int:
        before, place = direction.last
        place += (sequence - before + 2**31) % 2**32 - 2**31
        direction.last = (sequence, place)
        return place

    def _direction(self, pair: tuple[str, str], tcp: Packet, kept: int) -> Direction:
        syn = "S" in str(tcp.flags)
        key = (*pair, tcp.sport, tcp.dport)
        back = self._directions.get((pair[1], pair[0], tcp.dport, tcp.sport))
        known = self._directions.get(key)
        small = ":" in pair[0]
        if known is None or (syn and tcp.seq != known.initial):
            first = syn and "A" not in str(tcp.flags)
            if first and (known is not None or back is None or not back.opened):
                back = None  # it belongs to an earlier connection
            if known is not None:
                self._ended.append(known)
            begin = (tcp.seq + syn) % 2**32
            known = Direction(syn, tcp.seq, 1440 if small else 1460, last=(begin, 0))
            self._directions[key] = known
        elif not syn:
            return known
        if syn:
            options = dict(tcp.options)
            known.limit = int(options.get("MSS", 1220 if small else 536))
            # An MSS comes first. Without one it takes the end of what comes, after the timestamps.
            if kept < (24 if "MSS" in options else 31) and tcp.dataofs > 5:
                known.limit = None  # the options were not captured
        both = [known] if back is None else [known, back]
        limits = [one.limit for one in both if one.limit]
        for one in both:
            one.segment = min(limits, default=one.segment)
        return known

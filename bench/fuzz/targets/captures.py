"""Capture files: ``traffic.accounting.account``, which may raise ``TrafficError``."""

import struct
from collections.abc import Sequence
from unittest.mock import patch

from bench.fuzz.memory_file import MemoryFile
from traffic import TrafficError, chunks
from traffic.accounting import QUANTITIES, account

_FILE = MemoryFile("capture")

TOKENS = (
    *(struct.pack(f"{order}I", number) for order in "<>" for number in (1, 2, 3, 5, 6, 0x0A0D0D0A)),
    *(struct.pack(f"{order}I", number) for order in "<>" for number in (28, 32, 0x24000001, 2**24)),
    *(
        struct.pack(f"{order}HH", code, size)
        for order in "<>"
        for code in (2, 9, 13, 14)
        for size in (1, 4, 8)
    ),
    bytes(64),
    b"\x81\x00\x00\x05",
    b"\x86\xdd",
    b"\x08\x06",
)

_IPV4 = bytes.fromhex("4500003c0001000040060000 0a000001 0a000002".replace(" ", ""))
_IPV6 = bytes.fromhex(
    "6000000000181140".ljust(16, "0") + "fd" + "00" * 14 + "01fd" + "00" * 14 + "02"
)
_TCP = (
    struct.pack(">HHIIBBHHH", 1234, 80, 1, 0, 0xA0, 2, 64, 0, 0)
    + bytes.fromhex("020405b4")
    + bytes(16)
)


def _frames() -> list[bytes]:
    head = bytes(12)
    hop_by_hop = b"\x06\x00\x01\x04\0\0\0\0"
    later = _TCP[:4] + struct.pack(">I", 2) + _TCP[8:13] + b"\x18" + _TCP[14:]
    return [
        head + b"\x08\0" + _IPV4 + _TCP,
        head + b"\x08\0" + _IPV4 + later + b"data",
        head + b"\x81\0\0\5\x08\0" + _IPV4 + _TCP,
        head + b"\x86\xdd" + _IPV6[:6] + b"\x00" + _IPV6[7:] + hop_by_hop + _TCP,
        head + b"\x08\x06" + bytes(28),
        head + b"\x88\xcc" + bytes(40),
    ]


def _pcap(order: str, magic: int, link: int) -> bytes:
    made = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for i, frame in enumerate(_frames()):
        raw = frame if link & 0xFFFF == 1 else frame[14:]
        made += struct.pack(f"{order}IIII", 1_700_000_000 + i, i, len(raw), len(raw)) + raw
    return made


def _block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + size + body + size


def _pcapng(order: str, kind: int) -> bytes:
    made = _block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    for link, resolution in ((1, 9), (101, 0x94), (113, 6), (276, 3)):
        options = struct.pack(f"{order}HHB3xHHB3xHHq", 9, 1, resolution, 13, 1, 32, 14, 8, 5)
        made += _block(order, 1, struct.pack(f"{order}HHI", link, 0, 0) + options)
    for i, frame in enumerate(_frames()):
        heads = (frame[:14], b"", bytes(14) + frame[12:14], frame[12:14] + bytes(18))
        raw = heads[i % 4] + frame[14:] + bytes(4)
        number = struct.pack(f"{order}I" if kind == 6 else f"{order}HH", *([i % 4, 0][: 8 // kind]))
        body = number + struct.pack(f"{order}IIII", 400_000 + i, i, len(raw), len(raw))
        flags = struct.pack(f"{order}HHII", 2, 4, 4 << 5, 0)
        made += _block(order, kind, body + raw + bytes(-len(raw) % 4) + flags * (i % 2))
    counts = struct.pack(f"{order}IIIHHQHHQ", 0, 0, 0, 4, 8, 9, 5, 8, 1)
    return made + _block(order, 5, counts)


def corpus() -> Sequence[bytes]:
    """Return a file of each kind."""
    links = (1, 0x2400_0001, 101)
    files = [
        _pcap(order, magic, link)
        for order in "<>"
        for magic in (0xA1B2C3D4, 0xA1B23C4D)
        for link in links
    ]
    files += [_pcapng(order, kind) for order in "<>" for kind in (2, 6)]
    return [*files, _pcapng("<", 6) + _pcapng(">", 6)]


def check(data: bytes) -> bool:
    """Count the packets of a file, and check that the parts of the sums add up."""
    path = _FILE.hold(data)
    # In some, packets lie across the ends of chunks.
    with patch.object(chunks, "CHUNK", 200 if len(data) % 8 == 0 else 4096):
        try:
            found = account([path])
        except TrafficError as error:
            assert str(path) in str(error)
            return False
    totals = found.totals
    assert totals["wire_bytes"] == sum(totals[name] for name in QUANTITIES[3:])
    assert 0 <= totals["records"] <= len(data) // 16
    assert len(found.damage) <= 1
    return not found.damage

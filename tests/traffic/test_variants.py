"""The same frames in every variant of a capture file: the counts are always those of the frames.

The files are written here, field by field. What is in the frames is counted from scapy's dissection
(``tests.traffic.packets``), and by tshark.
"""

import bz2
import dataclasses
import functools
import gzip
import itertools
import json
import lzma
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import zstandard

from tests.traffic.packets import TIMESTAMPS, Count, Sent, frame, network, other, segment
from traffic import TrafficError
from traffic.accounting import QUANTITIES, account

BEGAN = 1_700_000_000
HEADS = {1: 14, 101: 0, 113: 16, 276: 20}
"""Bytes before the IP header, by link type: Ethernet, raw IP, and Linux cooked 1 and 2."""
CHECKSUMS = [b"", b"\xaa\xbb", b"\xaa\xbb\xcc\xdd"]


def frames(tags: int = 0) -> tuple[bytes, ...]:
    """Make a connection with segments before segmentation, and frames of other kinds.

    Args:
        tags: VLAN tags of each.
    """
    talk: list[tuple[str, int, str, int, list[object]]] = [
        ("a", 0, "S", 0, [("MSS", 1460)]),
        ("b", 0, "SA", 0, [("MSS", 1200)]),
        ("a", 1, "A", 0, [TIMESTAMPS]),
        ("a", 1, "PA", 4000, [TIMESTAMPS]),
        ("b", 1, "A", 0, []),
        ("a", 1, "PA", 900, [TIMESTAMPS]),  # sent again
        ("a", 4001, "FA", 0, []),
    ]
    made = []
    for source, sequence, flags, size, options in talk:
        layer = segment(source, 1234, sequence, flags, options) / (b"x" * size)
        made.append(frame(source, tags, network(4, source, False, False) / layer, 0x0800))
    made += [frame("b", tags, *other(kind, "b", 4, 300)) for kind in ("udp", "icmp")]
    return tuple(made)


IP_FRAMES = frames()
ARP = frame("a", 0, *other("arp", "a", 4, 0))
TAGGED = (*frames(1), *frames(2))
OF_LINK = {
    1: (*IP_FRAMES, *TAGGED, ARP),
    101: IP_FRAMES,
    113: (*IP_FRAMES, *TAGGED),
    276: (*IP_FRAMES, *TAGGED),
}
"""Frames of every kind that an interface of a link type captures."""


@dataclasses.dataclass(frozen=True)
class Packet:
    """A packet of a file: the bytes that are kept, and the length of the whole."""

    kept: bytes
    length: int
    tick: int


def packets(raws: Sequence[bytes], link: int, checksum: bytes, snap: int) -> list[Packet]:
    """Return how an interface of a link type captures frames, one each second."""
    made = []
    for i, raw in enumerate(raws):
        kind = raw[12:14]
        heads = {1: raw[:14], 101: b"", 113: bytes(14) + kind, 276: kind + bytes(18)}
        whole = heads[link] + raw[14:] + checksum
        made.append(Packet(whole[:snap], len(whole), i))
    return made


@functools.cache
def expected(raws: tuple[bytes, ...], link: int, snap: int) -> dict[str, int]:
    """Return the totals of frames of which so much is captured."""
    count = Count()
    for i, raw in enumerate(raws):
        kept = min(snap - HEADS[link] + 14, len(raw))
        count.take(Sent(raw, kept, (BEGAN + i) * 10**9))
    sums = dict.fromkeys(QUANTITIES, 0)
    for pair in count.sums.values():
        for name, number in pair.items():
            sums[name] += number
    return sums


def pcap(made: Sequence[Packet], order: str, nano: bool, link: int) -> tuple[bytes, list[int]]:
    """Return a file, and the places at which its packets end."""
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    # No tool reads the two words after the version, thiszone and sigfigs.
    result = struct.pack(f"{order}IHHiIII", magic, 2, 4, 3600, 9, 65535, link)
    ends = []
    for one in made:
        result += struct.pack(f"{order}IIII", BEGAN + one.tick, 5, len(one.kept), one.length)
        result += one.kept
        ends.append(len(result))
    return result, ends


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return (
        struct.pack(f"{order}II", kind, len(body) + 12)
        + body
        + struct.pack(f"{order}I", len(body) + 12)
    )


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


@dataclasses.dataclass(frozen=True)
class Clock:
    """if_tsresol and if_tsoffset."""

    resolution: int
    offset: int

    def ticks(self, second: int) -> int:
        base = 2 if self.resolution & 0x80 else 10
        return (second - self.offset) * int(base ** (self.resolution & 0x7F))


CLOCKS = [Clock(6, 0), Clock(9, 0), Clock(0x94, 0), Clock(0, 1000), Clock(0xA0, -7)]


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order: str, link: int, clock: Clock, more: bytes = b"") -> bytes:
    body = struct.pack(f"{order}HHI", link, 0, 0) + option(order, 9, bytes([clock.resolution]))
    return block(order, 1, body + option(order, 14, struct.pack(f"{order}q", clock.offset)) + more)


def packet(  # noqa: PLR0917 -- the fields in their order
    order: str, kind: int, clock: Clock, one: Packet, number: int = 0, flags: int = 0
) -> bytes:
    """Return an enhanced (6) or an obsolete (2) packet block."""
    ticks = clock.ticks(BEGAN + one.tick)
    first = struct.pack(f"{order}I", number) if kind == 6 else struct.pack(f"{order}HH", number, 3)
    body = first + struct.pack(
        f"{order}IIII", ticks >> 32, ticks & 0xFFFFFFFF, len(one.kept), one.length
    )
    body += one.kept + bytes(-len(one.kept) % 4)
    if flags:
        body += option(order, 1, b"a comment") + option(order, 2, struct.pack(f"{order}I", flags))
        body += option(order, 0, b"")
    return block(order, kind, body)


def same(path: Path, content: bytes, sums: dict[str, int]) -> None:
    path.write_bytes(content)
    found = account([path])
    assert (found.damage, found.totals) == ((), sums)
    assert found.first is not None and found.first // 10**9 == BEGAN


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("link", HEADS)
def test_pcap_files_count_as_their_frames(
    tmp_path: Path, order: str, nano: bool, link: int
) -> None:
    raws = OF_LINK[link]
    for checksum, snap in itertools.product(CHECKSUMS, (70, 65535)):
        made = packets(raws, link, checksum, snap)
        flags = len(checksum) // 2 << 28 | 0x0400_0000 if checksum else 0
        content, _ = pcap(made, order, nano, link | flags)
        same(tmp_path / "file", content, expected(raws, link, snap))
    made = packets(raws, link, b"", 98)
    for flags in (
        0x0400_0000,
        0x2000_0000,
    ):  # a checksum of no bytes, and a length without its flag
        content, _ = pcap(made, order, nano, link | flags)
        same(tmp_path / "file", content, expected(raws, link, 98))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", [6, 2])
@pytest.mark.parametrize("clock", CLOCKS)
def test_pcapng_files_count_as_their_frames(
    tmp_path: Path, order: str, kind: int, clock: Clock
) -> None:
    for link, checksum, snap in itertools.product(HEADS, CHECKSUMS, (70, 65535)):
        raws = OF_LINK[link]
        made = packets(raws, link, checksum, snap)
        size = len(checksum)
        # The length in bytes, in bits, with each packet, and with each packet against the interface.
        for value, flags in ((size, 0), (8 * size, 0), (None, size << 5), (6 - size, size << 5)):
            if size or not value:
                said = b"" if value is None else option(order, 13, bytes([value]))
                content = section(order) + interface(order, link, clock, said)
                for one in made:
                    content += packet(order, kind, clock, one, flags=flags)
                same(tmp_path / "file", content, expected(raws, link, snap))


def test_sections_interfaces_and_link_types_are_interleaved(tmp_path: Path) -> None:
    """A connection whose packets change between interfaces is counted as one, in its order."""
    for near, far, kind in itertools.product(HEADS, HEADS, (6, 2)):
        links = near, far
        content = b""
        for part, order in ((slice(0, 5), "<"), (slice(5, None), ">")):
            content += section(order) + block(order, 0x0BAD, b"custom")
            for link, clock, size in zip(links, CLOCKS[1:], (0, 32), strict=False):
                content += interface(order, link, clock, option(order, 13, bytes([size])))
            for i in range(len(IP_FRAMES))[part]:
                number = i % 2
                (one,) = packets([IP_FRAMES[i]], links[number], CHECKSUMS[2 * number], 65535)
                one = dataclasses.replace(one, tick=i)
                content += packet(order, kind, CLOCKS[1 + number], one, number)
        same(tmp_path / "file", content, expected(IP_FRAMES, 1, 65535))


@pytest.mark.parametrize(
    ("files", "dropped"),
    [
        ([], None),
        ([[]], None),
        ([[None]], None),
        ([[0], [0]], 0),
        ([[0], [None]], None),  # the capture was killed after its first file was full
        ([[None], [0]], None),
        ([[3], [None]], 3),
        ([[3], [5]], 5),  # each file has the drops so far
        ([[3, 4], [1, 2]], 7),
        ([[0, None]], None),
        ([[0, 0]], 0),
    ],
)
def test_that_nothing_was_dropped_is_known_if_all_files_say_so(
    tmp_path: Path, files: list[list[int | None]], dropped: int | None
) -> None:
    """``files``: the drops that the statistics of each file's interfaces state, if there are any."""
    paths = [tmp_path / str(number) for number in range(len(files))]
    for path, interfaces in zip(paths, files, strict=True):
        content = section("<") + interface("<", 1, CLOCKS[1]) * len(interfaces)
        for number, drops in enumerate(interfaces):
            if drops is not None:
                counted = option("<", 5, struct.pack("<Q", drops))
                content += block("<", 5, struct.pack("<III", number, 0, 0) + counted)
        path.write_bytes(content)
    assert account(paths).dropped == dropped


def variants() -> list[tuple[bytes, list[int]]]:
    """Return small files of each kind, and where their packets end."""
    raws = [raw[:120] for raw in IP_FRAMES[:4]]
    made = packets(raws, 1, CHECKSUMS[2], 65535)
    found = [pcap(made, order, order == ">", 0x2400_0001) for order in "<>"]
    for order, kind in itertools.product("<>", (6, 2)):
        content = section(order) + interface(order, 1, CLOCKS[1], option(order, 13, b"\x20"))
        ends = []
        for one in made:
            content += packet(order, kind, CLOCKS[1], one)
            ends.append(len(content))
        found.append((content, ends))
    return found


@pytest.mark.parametrize("number", range(6))
def test_a_file_that_is_cut_off_or_ends_in_zeros_is_counted_up_to_there(
    tmp_path: Path, number: int
) -> None:
    whole, ends = variants()[number]
    path = tmp_path / "file"
    for cut in range(ends[0] - 3, len(whole)):
        path.write_bytes(whole[:cut])
        found = account([path])
        assert found.totals["records"] == sum(end <= cut for end in ends)
        assert bool(found.damage) is (cut not in ends)
    for zeros in (*range(1, 40), 4096):
        path.write_bytes(whole + bytes(zeros))
        found = account([path])
        assert found.totals["records"] == len(ends)
        (damage,) = found.damage
        assert f"{path} is damaged at byte {len(whole):,}: " in damage


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_a_compressed_file_is_to_be_unpacked(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "file").write_bytes(pack(variants()[0][0]))
    with pytest.raises(TrafficError, match=r"it is compressed: unpack it \(\w+ -d\)"):
        account([tmp_path / "file"])


def test_the_command_counts_what_it_can_and_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content, ends = variants()[2]
    simple = block("<", 3, struct.pack("<I", 60) + bytes(60))
    reserved = pcap([], "<", False, 0x0801_0001)[0]
    for what, records, said in (
        (
            content + bytes(64),
            len(ends),
            f"is damaged at byte {len(content):,}: a block of 0 bytes",
        ),
        (
            content + simple,
            len(ends),
            f"cannot be read on from byte {len(content):,}: a packet without",
        ),
        (
            reserved,
            0,
            "cannot be read on from byte 20: the link type 0x08010001, in which reserved",
        ),
    ):
        path.write_bytes(what)
        command = [sys.executable, "-m", "traffic", "summarize", "--json", str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        assert json.loads(ended.stdout)["totals"]["records"] == records
        assert ended.stderr.startswith(f"traffic: {path} {said}") and ended.stderr.count("\n") == 1


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
@pytest.mark.parametrize("number", range(6))
def test_tshark_finds_the_same(tmp_path: Path, number: int) -> None:
    path = tmp_path / "file.pcap"
    path.write_bytes(variants()[number][0])
    fields = ["-T", "fields", "-e", "frame.len", "-e", "tcp.len"]
    command = ["tshark", "-n", "-r", str(path), "-o", "ip.check_checksum:FALSE", *fields]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in shown.splitlines()]
    totals = account([path]).totals
    assert totals["records"] == len(rows)
    assert sum(int(length) - 4 for length, _ in rows) == totals["wire_bytes"]

"""Reading capture files of every kind, whole and damaged."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traffic import TrafficError, chunks
from traffic.accounting import account
from traffic.capture_files import CaptureFile, DamagedError

PACKETS = [bytes([n]) * 12 + b"\x88\xcc" + bytes(n) for n in (46, 60, 101, 47, 83)]
BEGAN = 1_700_000_000


def pcap(order: str = "<", nano: bool = False, link: int = 1) -> bytes:
    magic, tick = (0xA1B23C4D, 1) if nano else (0xA1B2C3D4, 1000)
    result = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for i, raw in enumerate(PACKETS):
        result += struct.pack(f"{order}IIII", BEGAN + i, 123_456_789 // tick, len(raw), len(raw))
        result += raw
    return result


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = len(body) + 12
    return struct.pack(f"{order}II", kind, size) + body + struct.pack(f"{order}I", size)


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(
    order: str, resolution: int | None = None, offset: int | None = None, link: int = 1
) -> bytes:
    body = struct.pack(f"{order}HHI", link, 0, 0) + option(order, 2, b"eth0")
    if resolution is not None:
        body += option(order, 9, bytes([resolution]))
    if offset is not None:
        body += option(order, 14, struct.pack(f"{order}q", offset))
    return block(order, 1, body + option(order, 0, b""))


def packet(order: str, number: int, ticks: int, raw: bytes) -> bytes:
    head = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(raw), len(raw))
    return block(order, 6, head + raw + bytes(-len(raw) % 4) + option(order, 0, b""))


def statistics(order: str, number: int, received: int, dropped: int) -> bytes:
    body = struct.pack(f"{order}III", number, 0, 0)
    body += option(order, 4, struct.pack(f"{order}Q", received))
    body += option(order, 5, struct.pack(f"{order}Q", dropped))
    return block(order, 5, body)


def pcapng() -> bytes:
    """Make a section of each byte order, with several interfaces and blocks that are to be skipped."""
    result = section("<") + interface("<") + interface("<", 9)
    result += packet("<", 0, BEGAN * 10**6, PACKETS[0])
    result += block("<", 4, bytes(20)) + block("<", 0x0BAD, b"custom")
    result += packet("<", 1, (BEGAN + 1) * 10**9, PACKETS[1])
    result += packet("<", 0, (BEGAN + 2) * 10**6, PACKETS[2])
    result += statistics("<", 1, 10, 3) + statistics("<", 0, 5, 4)
    result += section(">") + interface(">", 0x94)  # 2²⁰ ticks per second
    result += packet(">", 0, (BEGAN + 3) << 20, PACKETS[3])
    result += packet(">", 0, (BEGAN + 4) << 20, PACKETS[4])
    return result


def read(path: Path) -> tuple[list[tuple[int, bytes]], str | None]:
    """Return time and bytes of each packet, and the file's damage, if any."""
    packets: list[tuple[int, bytes]] = []
    try:
        for batch in CaptureFile(path).records():
            packets += [
                (time, batch.buffer[at : at + kept].tobytes())
                for time, at, kept in zip(
                    batch.time.tolist(), batch.at.tolist(), batch.kept.tolist(), strict=True
                )
            ]
    except DamagedError as error:
        return packets, str(error)
    return packets, None


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("chunk", [20, 100, chunks.CHUNK])
def test_pcap_files_are_read_in_chunks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, nano: bool, chunk: int
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", chunk)
    path = tmp_path / "file"
    path.write_bytes(pcap(order, nano))
    fraction = 123_456_789 if nano else 123_456_000
    expected = [((BEGAN + i) * 10**9 + fraction, raw) for i, raw in enumerate(PACKETS)]
    assert read(path) == (expected, None)


@pytest.mark.parametrize("chunk", [20, 100, chunks.CHUNK])
def test_pcapng_files_are_read_in_chunks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", chunk)
    path = tmp_path / "file"
    path.write_bytes(pcapng())
    assert read(path) == ([((BEGAN + i) * 10**9, raw) for i, raw in enumerate(PACKETS)], None)
    file = CaptureFile(path)
    assert sum(len(batch) for batch in file.records()) == len(PACKETS)
    assert [one.dropped for one in file.interfaces] == [4, 3, None]
    assert [one.ticks for one in file.interfaces] == [10**6, 10**9, 2**20]
    assert account([path]).dropped == 7


@given(
    st.integers(0, 18) | st.integers(0x80, 0x80 + 63),
    st.integers(0, 2**64 - 1),
    st.integers(-(10**6), 10**6),
)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_times_are_right_with_any_resolution_and_offset(
    tmp_path: Path, resolution: int, ticks: int, offset: int
) -> None:
    rate = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
    exact = ticks * 10**9 // rate + offset * 10**9
    if not -(2**63) <= exact < 2**63:
        ticks, exact = 5, 5 * 10**9 // rate + offset * 10**9
    path = tmp_path / "file"
    path.write_bytes(
        section(">") + interface(">", resolution, offset) + packet(">", 0, ticks, b"x" * 60)
    )
    ((time, _),), damage = read(path)
    assert damage is None
    assert exact - (rate > 2**34 and bool(resolution & 0x80)) <= time <= exact


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_a_file_that_is_cut_off_anywhere_is_read_up_to_there(tmp_path: Path, make: object) -> None:
    """Whole packets are read, and the error names the byte at which the rest begins."""
    whole = make()  # type: ignore[operator]
    path = tmp_path / "file"
    path.write_bytes(whole)
    everything, _ = read(path)
    ends = [whole.index(raw) + len(raw) for raw in PACKETS]
    if make is pcapng:
        ends = [end + (-len(raw) % 4) + 8 for end, raw in zip(ends, PACKETS, strict=True)]
        borders = []
        place = 0
        while place < len(whole):
            borders.append(place)
            for order in "<>":
                (size,) = struct.unpack_from(f"{order}I", whole, place + 4)
                if size < 2**16:
                    break
            place += size
    else:
        borders = [0, 24, *ends]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        if cut < 4:
            with pytest.raises(TrafficError, match="neither a pcap nor a pcapng file"):
                list(CaptureFile(path).records())
            continue
        packets, damage = read(path)
        assert packets == everything[: sum(end <= cut for end in ends)]
        if cut in borders:
            assert damage is None
            continue
        assert damage is not None
        begin = cut if cut < 24 and make is pcap else max(b for b in borders if b <= cut)
        assert f"is damaged at byte {begin:,}: the file ends within" in damage
        found = account([path])
        assert found.damage == (damage,)
        assert found.totals["records"] == len(packets)


@given(
    st.sampled_from(["<micro", ">nano", "pcapng"]),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=8),
    st.sampled_from([30, 300, chunks.CHUNK]),
)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_with_flipped_bytes_is_read_or_reported_as_damaged(
    tmp_path: Path, what: str, flips: list[tuple[int, int]], chunk: int
) -> None:
    raw = bytearray(pcapng() if what == "pcapng" else pcap(what[0], "nano" in what))
    for place, value in flips:
        raw[place % len(raw)] = value
    path = tmp_path / "file"
    path.write_bytes(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK", chunk)
        try:
            found = account([path])
        except TrafficError as error:
            assert str(path) in str(error)
            return
    assert found.totals["records"] <= 40
    assert all(
        str(path) in text and ("damaged at byte" in text or "read on from byte" in text)
        for text in found.damage
    )


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (block("<", 2, bytes(12) + struct.pack("<II", 99, 99) + bytes(60)), "does not fit"),
        (block("<", 1, bytes(8) + option("<", 13, b"\x21")), "a checksum (if_fcslen) of 33"),
        (interface("<", 60), "a clock of 10^60 ticks"),
        (interface("<", 9, 2**40), "seconds off"),
        (packet("<", 7, 0, b"x"), "does not fit its block"),
        (statistics("<", 7, 1, 1), "contradicts itself"),
        (struct.pack("<IIII", 6, 33, 0, 0), "a block of 33 bytes"),
        (struct.pack("<8I", 6, 33, 0, 0, 0, 0, 0, 33), "does not fit its block"),
        (struct.pack("<IIII", 9, 2**25, 0, 0), "a block of 33,554,432 bytes"),
        (struct.pack("<III", 9, 12, 16), "two lengths differ"),
        (section("<").replace(struct.pack("<I", 0x1A2B3C4D), b"abcd"), "byte-order mark 61 62"),
        (b"\0" * 40, "a block of 0 bytes"),
    ],
)
def test_damage_is_named(tmp_path: Path, tail: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(pcapng()[: pcapng().index(section(">"))] + tail + packet("<", 0, 0, b"y"))
    place = len(pcapng()[: pcapng().index(section(">"))])
    packets, damage = read(path)
    assert len(packets) == 3
    assert damage is not None
    assert f"damaged at byte {place:,}: " in damage
    assert why in damage


@pytest.mark.parametrize(
    ("before", "tail", "why"),
    [
        (b"", block("<", 3, struct.pack("<I", 60) + bytes(60)), "a packet without its time"),
        (interface("<", link=147), packet("<", 2, 0, b"x"), "packets of link type 147"),
    ],
)
def test_what_is_not_read_is_named_and_is_no_damage(
    tmp_path: Path, before: bytes, tail: bytes, why: str
) -> None:
    path = tmp_path / "file"
    begin = pcapng()[: pcapng().index(section(">"))] + before
    path.write_bytes(begin + tail + packet("<", 0, 0, b"y"))
    packets, damage = read(path)
    assert len(packets) == 3
    assert damage is not None
    assert f"{path} cannot be read on from byte {len(begin):,}: {why}" in damage


def test_a_packet_of_an_impossible_length_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(pcap() + struct.pack("<IIII", 1, 1, 2**31, 2**31) + bytes(100))
    packets, damage = read(path)
    assert len(packets) == len(PACKETS)
    assert damage is not None
    assert f"byte {len(pcap()):,}: a packet of 2,147,483,648 bytes" in damage


def test_packets_may_be_longer_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 50)
    path = tmp_path / "file"
    raw = bytes(range(256)) * 30
    path.write_bytes(section("<") + interface("<") + packet("<", 0, 0, raw) * 3)
    assert read(path) == ([(0, raw)] * 3, None)


def test_known_link_types_are_read_and_others_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(pcap(link=105))
    (damage,) = account([path]).damage
    assert damage.startswith(f"{path} cannot be read on from byte 20: packets of link type 105; ")
    datagram = bytes.fromhex("45000020000000004011000001020304050607080001000200100000") + bytes(8)
    for link, head in ((101, b""), (113, bytes(14) + b"\x08\0"), (276, b"\x08\0" + bytes(18))):
        raw = head + datagram
        path.write_bytes(
            section("<") + interface("<", link=link) + packet("<", 0, 0, raw + b"\0" * 0)
        )
        found = account([path])
        assert found.pairs == (("1.2.3.4", "5.6.7.8"),)
        assert found.totals["other_bytes"] == 14 + len(datagram)


def test_packets_of_alternating_interfaces_are_read_quickly(tmp_path: Path) -> None:
    """A batch for each change of interface would take minutes."""
    path = tmp_path / "file"
    both = packet("<", 0, 1, PACKETS[0]) + packet("<", 1, 1, PACKETS[1])
    path.write_bytes(section("<") + interface("<") + interface("<", 9) + both * 50_000)
    file = CaptureFile(path)
    assert len(list(file.records())) <= 3
    assert account([path]).totals["records"] == 100_000


@pytest.mark.parametrize("content", [b"", b"GIF89a"])
def test_a_file_that_is_no_capture_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TrafficError, match="is neither a pcap nor a pcapng file: it "):
        account([path])
    with pytest.raises(TrafficError, match="cannot be read: No such file"):
        account([tmp_path / "nix"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TrafficError, match="pipe cannot be read: it is no file"):
        account([tmp_path / "pipe"])
    with pytest.raises(TrafficError, match="cannot be read: it is a directory"):
        account([tmp_path])

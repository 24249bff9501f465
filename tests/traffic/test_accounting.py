"""The account of generated packets, against one made packet by packet from scapy's dissection."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.packet import Raw
from scapy.utils import PcapNgWriter, RawPcapWriter

from tests.traffic.packets import TIMESTAMPS, Count, Sent, frame, network, other, segment
from traffic import chunks
from traffic.accounting import QUANTITIES, Account, account

SUMMANDS = QUANTITIES[3:]
LINES = st.fixed_dictionaries(
    {
        "version": st.sampled_from([4, 6]),
        "tags": st.integers(0, 2),
        "mss": st.sampled_from([None, 536, 1200, 1460, 8960]),
        "options": st.booleans(),
        "extended": st.booleans(),
        "handshake": st.sampled_from(["both", "client", "none"]),
        "initial": st.sampled_from([0, 1, 77, 2**31, 2**32 - 2000, 2**32 - 1]),
    }
)
SEGMENTS = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, 8000),
    st.sampled_from([0, 0, 1, 6, 536, 1447, 1448, 1449, 4000]),
    st.sampled_from(["A", "A", "PA", "FA", "R", "RA", "F"]),
)
OTHERS = st.tuples(
    st.sampled_from(["arp", "lldp", "udp", "icmp", "echo", "solicit", "advertise"]),
    st.sampled_from("ab"),
    st.integers(0, 2),
    st.integers(0, 1400),
)
EVENTS = st.lists(
    st.tuples(st.just("tcp"), st.integers(0, 2), SEGMENTS)
    | st.tuples(st.just("again"), st.integers(0, 2), st.integers(0, 2**32 - 1))
    | st.tuples(st.just("piece"), st.integers(0, 2), SEGMENTS)
    | st.tuples(st.just("other"), st.just(0), OTHERS),
    max_size=25,
)


class Talk:
    """The packets of the connections and events that hypothesis drew."""

    def __init__(self, lines: list[dict[str, Any]], kept: list[int]) -> None:
        self.sent: list[Sent] = []
        self._lines = lines
        self._kept = kept
        self._is_anew = False
        for number in range(len(lines)):
            self.open(number, lines[number]["initial"], lines[number]["handshake"])

    def _add(self, raw: bytes, least: int = 0) -> None:
        count = len(self.sent)
        kept = min(len(raw), max(least, self._kept[count % len(self._kept)]))
        self.sent.append(Sent(raw, kept, 1_700_000_000_123_456_789 + count * 700_000_000))

    def _tcp(
        self, number: int, source: str, sequence: int, flags: str, size: int, *, piece: bool = False
    ) -> None:
        line = self._lines[number]
        options: list[object] = [TIMESTAMPS] if line["options"] else []
        if "S" in flags and line["mss"]:
            options.insert(0, ("MSS", line["mss"]))
        header = network(line["version"], source, line["extended"], piece)
        packet = header / segment(source, 5000 + number, sequence, flags, options)
        raw = frame(
            source, line["tags"], packet / Raw(b"x" * size), {4: 0x0800, 6: 0x86DD}[line["version"]]
        )
        if size == 4000:  # as before segmentation: the length may not have been filled in
            at = 14 + 4 * line["tags"] + {4: 2, 6: 4}[line["version"]]
            raw = raw[:at] + b"\0\0" + raw[at + 2 :]
        # Without the SYN of a connection that begins anew, its packets look damaged: far away.
        self._add(raw, 200 if "S" in flags and self._is_anew else 0)

    def open(self, number: int, initial: int, handshake: str) -> None:
        self._lines[number] = self._lines[number] | {"initial": initial}
        if handshake != "none":
            self._tcp(number, "a", initial, "S", 0)
        if handshake == "both":
            self._tcp(number, "b", initial + 999, "SA", 0)

    def event(self, kind: str, number: int, drawn: Any) -> None:
        if kind == "again":
            self._is_anew = True
            self.open(number, drawn, "both")
            self._is_anew = False
        elif kind == "other":
            what, source, tags, size = drawn
            version = 4 if what == "icmp" else 6 if what in ("echo", "solicit", "advertise") else 4
            packet, protocol = other(what, source, version, size)
            self._add(frame(source, tags, packet, protocol))
        else:
            source, place, size, flags = drawn
            initial = self._lines[number]["initial"] + (999 if source == "b" else 0)
            self._tcp(number, source, initial + 1 + place, flags, size, piece=kind == "piece")


def write(path: Path, sent: list[Sent], how: str) -> None:
    if how == "pcapng":
        with PcapNgWriter(str(path)) as sections:
            sections.linktype = 1
            sections.write_header(None)
            for one in sent:  # scapy writes microseconds here
                time, size = one.time // 1000 / 1e6, len(one.raw)
                sections._write_packet(one.captured, 1, sec=time, caplen=one.kept, wirelen=size)
        return
    unit = 1 if "nano" in how else 1000
    with RawPcapWriter(str(path), linktype=1, nano="nano" in how, endianness=how[0]) as writer:
        writer.write_header(None)
        for one in sent:
            seconds, rest = divmod(one.time, 10**9)
            writer.write_packet(one.captured, seconds, rest // unit, one.kept, len(one.raw))


def by_pair(found: Account) -> dict[tuple[str, str], dict[str, int]]:
    result = {}
    for number, pair in enumerate(found.pairs):
        rows = found.seconds[found.seconds["pair"] == number]
        result[pair] = {name: int(rows[name].sum()) for name in QUANTITIES}
    return result


@given(
    st.lists(LINES, min_size=3, max_size=3),
    EVENTS,
    st.lists(
        st.sampled_from([96, 128, 128, 2000, 9000, 80, 60, 54, 40, 20, 13]), min_size=1, max_size=5
    ),
    st.sampled_from(["<micro", ">micro", "<nano", ">nano", "pcapng"]),
    st.sampled_from([64, 400, 5000, chunks.CHUNK]),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_account_agrees_with_one_made_by_scapy(
    lines: list[dict[str, Any]], events: list[Any], kept: list[int], how: str, chunk: int
) -> None:
    talk = Talk(lines, kept)
    for event in events:
        talk.event(*event)
    expected = Count()
    for one in talk.sent:
        expected.take(one)
    expected.finish()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "packets"
        write(path, talk.sent, how)
        patch.setattr(chunks, "CHUNK", chunk)
        found = account([path])
    assert not found.damage
    wanted = {
        pair: {name: sums.get(name, 0) for name in QUANTITIES}
        for pair, sums in expected.sums.items()
    }
    assert by_pair(found) == wanted
    seconds = {
        (int(row["second"]), *found.pairs[int(row["pair"])]): int(row["wire_bytes"])
        for row in found.seconds
    }
    assert seconds == expected.seconds
    assert found.totals["wire_bytes"] == sum(found.totals[name] for name in SUMMANDS)
    assert int(found.flows["missing_bytes"].sum()) == expected.missing
    for name in QUANTITIES:
        assert found.totals[name] == int(found.seconds[name].sum())
    if talk.sent:
        unit = 1 if "nano" in how else 1000
        assert found.first == talk.sent[0].time // unit * unit
        assert found.last == talk.sent[-1].time // unit * unit


@given(st.lists(st.tuples(st.binary(max_size=200), st.integers(0, 70000)), max_size=20))
@settings(max_examples=300, deadline=None)
def test_garbage_is_counted_without_guesses_about_it(drawn: list[tuple[bytes, int]]) -> None:
    heads = [b"", b"\2" * 12 + b"\x08\0\x45", b"\2" * 12 + b"\x86\xdd\x60", b"\2" * 12 + b"\x81\0"]
    packets = [(heads[i % 4] + raw, more) for i, (raw, more) in enumerate(drawn)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packets"
        writer = RawPcapWriter(str(path), linktype=1)
        writer.write_header(None)
        for raw, more in packets:
            writer.write_packet(raw, 1, 1, len(raw), len(raw) + more)
        writer.close()
        found = account([path])
    assert found.totals["records"] == len(packets)
    assert found.totals["wire_bytes"] >= sum(len(raw) + more for raw, more in packets)
    assert found.totals["wire_bytes"] == sum(found.totals[name] for name in SUMMANDS)


def test_few_packets_over_a_long_time_take_few_rows(tmp_path: Path) -> None:
    """A table of every second and pair would need gigabytes."""
    path = tmp_path / "packets"
    writer = RawPcapWriter(str(path), linktype=1)
    writer.write_header(None)
    for i in range(1000):
        raw = bytes([2, 0, 0, 0, i >> 8, i & 255]) * 2 + b"\x88\xcc" + b"\0" * 46
        writer.write_packet(raw, i * 4_000_000, 0, 60, 60)
    writer.close()
    found = account([path])
    assert found.totals["records"] == len(found.seconds) == 1000
    assert np.array_equal(found.seconds["second"], np.arange(1000) * 4_000_000)


def test_reused_ports_get_the_segment_size_of_the_new_connection(tmp_path: Path) -> None:
    path = tmp_path / "packets"
    sent = []
    for number, mss in enumerate((1460, 536)):
        for source, flags, size in (
            ("a", "S", 0),
            ("b", "SA", 0),
            ("a", "A", 3000),
            ("b", "A", 3000),
        ):
            options: list[object] = [("MSS", mss)] if "S" in flags else []
            sequence = number * 10**6 + ("S" not in flags)
            tcp = segment(source, 5000, sequence, flags, options)
            raw = frame(
                source, 0, network(4, source, False, False) / tcp / Raw(bytes(size)), 0x0800
            )
            sent.append(Sent(raw, 60, 10**18))
    write(path, sent, "<nano")
    found = account([path])
    assert found.flows["segment"].tolist() == [1460, 1460, 536, 536]
    assert found.flows["frames"].tolist() == [1 + 3, 1 + 3, 1 + 6, 1 + 6]
    assert found.flows["stream_bytes"].tolist() == [3000] * 4


@pytest.mark.parametrize("size", [0, 400])
def test_a_damaged_flag_is_not_the_beginning_of_a_connection(tmp_path: Path, size: int) -> None:
    """A packet in the middle of a stream looks like a SYN; the receiver drops it; it is sent again."""
    path = tmp_path / "packets"
    sent = []
    packets = (
        ("a", 0, "S", 0),
        ("b", 0, "SA", 0),
        ("a", 1, "A", 1000),
        ("a", 1001, "SA", size),
        ("a", 1001, "A", size),
        ("b", 1, "A", 500),
        ("a", 1001 + size, "A", 3000),
    )
    for source, sequence, flags, length in packets:
        options: list[object] = [("MSS", 1200)] if length == 0 and sequence == 0 else [TIMESTAMPS]
        tcp = segment(source, 5000, 77 + sequence, flags, options)
        raw = frame(source, 0, network(4, source, False, False) / tcp / Raw(bytes(length)), 0x0800)
        sent.append(Sent(raw, min(len(raw), 128), 10**18))
    write(path, sent, "<nano")
    flows = account([path]).flows
    assert flows["stream_bytes"].tolist() == [4000 + size, 500]
    assert flows["missing_bytes"].tolist() == [0, 0]
    assert flows["frames"].tolist() == [1 + 1 + 1 + 1 + 3, 1 + 1]


@pytest.mark.parametrize("chunk", [64, 5000])
def test_without_the_answer_the_segment_size_is_that_of_the_syn(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "packets"
    sent = []
    for source, flags, size, kept in (("a", "S", 0, 60), ("b", "SA", 0, 40), ("b", "A", 1447, 60)):
        tcp = segment(source, 5000, 1, flags, [])  # without the option MSS: 536
        raw = frame(source, 0, network(4, source, False, False) / tcp / Raw(bytes(size)), 0x0800)
        sent.append(Sent(raw, kept, 10**18))
    write(path, sent, "<nano")
    monkeypatch.setattr(chunks, "CHUNK", chunk)
    assert account([path]).totals["frames"] == 1 + 1 + 3


@pytest.mark.parametrize("initial", [1000, 2**32 - 50, 2**32 - 102])
def test_acknowledged_bytes_are_counted_by_connection(tmp_path: Path, initial: int) -> None:
    """The other side closes after 100 of 150 bytes; then the same ports are used again."""
    path = tmp_path / "packets"
    sent = []
    for begin, first_bytes in ((initial, 100), (initial + 10**9, 60)):
        packets = (
            ("a", 0, 0, "S", 0),
            ("b", 0, 1, "SA", 0),
            ("a", 1, 1, "A", first_bytes),
            ("b", 1, 1 + first_bytes, "FA", 0),
            ("a", 1 + first_bytes, 2, "A", 50),
            ("b", 2, 0, "R", 0),
        )
        for source, sequence, acknowledged, flags, size in packets:
            own, other_s = (begin, begin + 7) if source == "a" else (begin + 7, begin)
            tcp = segment(source, 5000, own + sequence, flags, [])
            tcp.ack = (other_s + acknowledged) % 2**32
            packet = network(4, source, False, False) / tcp / Raw(bytes(size))
            sent.append(Sent(frame(source, 0, packet, 0x0800), 60, 10**18))
    write(path, sent, "<nano")
    flows = account([path]).flows
    assert flows["stream_bytes"].tolist() == [150, 0, 110, 0]
    assert flows["acknowledged_bytes"].tolist() == [100, 0, 60, 0]


def test_a_port_used_again_at_once_has_its_own_acknowledgements(tmp_path: Path) -> None:
    """The second connection's numbers begin within the first one's stream; none is acknowledged."""
    path = tmp_path / "packets"
    sent = []
    for i, (begin, size, acknowledged) in enumerate(((1000, 5000, 5000), (4000, 8000, 0))):
        packets = (
            ("a", 0, "S", 0, 0),
            ("b", 0, "SA", 0, 1),
            ("a", 1, "A", size, 1),
            ("b", 1, "A", 0, 1 + acknowledged),
        )
        for source, sequence, flags, length, ack in packets:
            own, other_s = (begin, begin + 7) if source == "a" else (begin + 7, begin)
            tcp = segment(source, 5000, own + sequence, flags, [])
            tcp.ack = other_s + ack
            packet = network(4, source, False, False) / tcp / Raw(bytes(length))
            sent.append(Sent(frame(source, 0, packet, 0x0800), 60, 10**18 + 10**5 * i))
    write(path, sent, "<nano")
    flows = account([path]).flows
    assert flows["stream_bytes"].tolist() == [5000, 0, 8000, 0]
    assert flows["acknowledged_bytes"].tolist() == [5000, 0, 0, 0]


def test_packets_with_contradictory_headers_count_as_other(tmp_path: Path) -> None:
    path = tmp_path / "packets"
    whole = frame("a", 0, network(4, "a", False, False) / segment("a", 1, 1, "A", []), 0x0800)
    short = whole[:16] + (39).to_bytes(2, "big") + whole[18:]  # IP ends within TCP's header
    long = whole[:16] + (61).to_bytes(2, "big") + whole[18:]  # IP says more than was sent
    small = whole[:46] + b"\x40" + whole[47:]  # a TCP header of 16 bytes
    write(path, [Sent(raw, 60, 10**18) for raw in (whole, short, long, small)], "<nano")
    found = account([path])
    assert found.totals["ack_bytes"] == 60
    assert found.totals["other_bytes"] == 180

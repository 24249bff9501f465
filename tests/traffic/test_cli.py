"""The command line ``python -m traffic``, as a person uses it."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import RawPcapWriter

from tests.traffic.isolation import traffic as in_a_process
from tests.traffic.packets import ADDRESS, MAC, TIMESTAMPS, frame, network, other, segment
from traffic.cli import main
from traffic.packet_totals import QUANTITIES

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command line in this process."""

    def run(*arguments: str | Path) -> CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["traffic", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "80")
        status = 0
        try:
            main()
        except SystemExit as exit:
            status = int(exit.code or 0)
        return CompletedProcess(arguments, status, *capsys.readouterr())

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write an IPv6 connection with a packet of two segments, one of them sent again; and ARP."""
    path = tmp_path / "some.pcap"
    writer = RawPcapWriter(str(path), linktype=1, nano=True)
    writer.write_header(None)
    options: list[object] = [TIMESTAMPS]
    rows = [
        ("a", 100, "S", 0, [("MSS", 1440), *options]),
        ("b", 500, "SA", 0, [("MSS", 1440), *options]),
        ("a", 101, "A", 0, options),
        ("a", 101, "PA", 2000, options),
        ("a", 1529, "PA", 572, options),
        ("b", 501, "A", 0, options),
    ]
    raws = [
        frame(
            source,
            0,
            network(6, source, False, False)
            / segment(source, 5000, sequence, flags, more)
            / Raw(bytes(size)),
            0x86DD,
        )
        for source, sequence, flags, size, more in rows
    ]
    raws.append(frame("a", 0, *other("arp", "a", 4, 0)))
    for i, raw in enumerate(raws):
        writer.write_packet(raw[:128], 1_700_000_000 + i // 4, i, min(len(raw), 128), len(raw))
    writer.close()
    return path


def test_summarize_prints_a_table(traffic: Run, file: Path) -> None:
    said = traffic("summarize", file)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    text = " ".join(lines)
    assert "7 packets in 1.000 s from 2023-11-14 22:13:20 UTC" in text
    assert "8 frames" in text
    assert "not all files record whether packets were dropped" in text
    head = next(line for line in lines if line.startswith("source"))
    assert "sent again" in head
    assert "other" not in head  # there are no such packets
    a, b = ADDRESS[6, "a"], ADDRESS[6, "b"]
    (row,) = [line.split() for line in lines if line.startswith(a)]
    # Ethernet 14, IPv6 40, TCP 20 and 12 of options (16 with the MSS, padded).
    data, again = 2000 + 2 * 86, 572 + 86
    assert row == [a, b, "5", f"{data + again + 86 + 90:,}", "2,000", "172", "86", "90", "658", "0"]


def test_addresses_are_printed_as_they_are(traffic: Run, tmp_path: Path) -> None:
    """Every byte and every short group of an address, some of which are names of emoji to rich."""
    path = tmp_path / "addresses.pcap"
    writer = RawPcapWriter(str(path), linktype=1)
    writer.write_header(None)
    macs = [f"02:{byte:02x}:00:{byte:02x}:{byte:02x}:00" for byte in range(256)]
    groups = [f"fd00:{number:x}:{number:x}:{number:x}::1" for number in range(1, 256)]
    for mac in macs:
        writer.write_packet(bytes(Ether(src=mac, dst=MAC["b"], type=0x0806)))
    for address in groups:
        writer.write_packet(
            bytes(Ether(dst=MAC["b"], src=MAC["a"]) / IPv6(src=address, dst="fd00::"))
        )
    writer.close()
    printed = {line.split()[0] for line in traffic("summarize", path).stdout.splitlines()}
    assert printed >= {*macs, *groups}


def test_summarize_prints_json(traffic: Run, file: Path) -> None:
    told = json.loads(traffic("summarize", "--json", file).stdout)
    assert told["first"] == 1_700_000_000 * 10**9
    assert told["dropped"] is None
    assert told["damage"] == []
    assert told["assumed_segment_sizes"] == 0
    assert told["totals"]["records"] == 7
    assert told["totals"]["arp_bytes"] == 60
    assert [pair["records"] for pair in told["pairs"]] == [4, 2, 1]
    there, back = told["connections"]
    assert (there["source"], there["source_port"]) == (ADDRESS[6, "a"], 5000)
    assert (there["stream_bytes"], there["retransmitted_bytes"]) == (2000, 658)
    assert (there["segment"], there["opened"], there["closed"]) == (1440, True, False)
    assert back["destination_port"] == 5000


def test_summarize_prints_connections_and_writes_seconds(
    traffic: Run, file: Path, tmp_path: Path
) -> None:
    seconds = tmp_path / "seconds.csv"
    said = traffic("summarize", "--connections", "--per-second", seconds, file)
    assert said.returncode == 0
    assert f"{ADDRESS[6, 'a']} 5000" in said.stdout
    assert f"{ADDRESS[6, 'b']} 80" in said.stdout
    with seconds.open() as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["second", "source", "destination", *QUANTITIES]
    assert sum(int(row["records"]) for row in rows) == 7
    assert {row["second"] for row in rows} == {"1700000000", "1700000001"}
    nowhere = traffic("summarize", "--per-second", tmp_path / "no" / "x.csv", file)
    assert (nowhere.returncode, nowhere.stderr.count("\n")) == (1, 1)


def test_a_damaged_file_is_read_as_far_as_it_goes(traffic: Run, file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    said = traffic("summarize", file)
    assert said.returncode == 1
    assert "6 packets" in said.stdout
    assert "2,000" in said.stdout
    assert said.stderr.startswith(f"traffic: {file} is damaged at byte ")
    assert said.stderr.count("\n") == 1
    as_json = traffic("summarize", "--json", file)
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["damage"] == [said.stderr.removeprefix("traffic: ").strip()]


def test_several_files_are_one_capture(traffic: Run, file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    cut = 24 + sum(16 + size for size in (90, 90, 86, 128))
    parts = [tmp_path / "one.pcap", tmp_path / "two.pcap"]
    parts[0].write_bytes(whole[:cut])
    parts[1].write_bytes(whole[:24] + whole[cut:])
    together = json.loads(traffic("summarize", "--json", *parts).stdout)
    assert together == json.loads(traffic("summarize", "--json", file).stdout)


def test_an_empty_capture_has_no_packets(traffic: Run, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:24])
    said = traffic("summarize", file)
    assert (said.returncode, said.stdout, said.stderr) == (0, "no packets\n", "")
    assert json.loads(traffic("summarize", "--json", file).stdout)["pairs"] == []


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["summarize", "no-such-file"], 1, "no-such-file cannot be read: No such file"),
        (["summarize", "pyproject.toml"], 1, "is neither a pcap nor a pcapng file"),
        (["summarize", "Makefile", "--per-second", "./Makefile"], 1, "would be overwritten"),
        (["summarize"], 2, "Missing argument"),
        (["capture"], 2, "--interface"),
        (["capture", "-i", "lo", "tcp", "--exclude-host", "1.2.3.4"], 2, "not both"),
    ],
)
def test_a_mistake_is_explained_in_a_sentence(
    traffic: Run, arguments: list[str], status: int, sentence: str
) -> None:
    said = traffic(*arguments)
    assert said.returncode == status
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr


def test_the_command_line_runs_as_a_process(file: Path) -> None:
    said = in_a_process("--help")
    assert (said.returncode, said.stderr) == (0, "")
    assert "capture" in said.stdout and "summarize" in said.stdout
    file.write_bytes(file.read_bytes()[:-5])
    said = in_a_process("summarize", file)
    assert said.returncode == 1
    assert "6 packets" in said.stdout
    assert said.stderr.startswith(f"traffic: {file} is damaged at byte ")

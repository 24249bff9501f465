"""Captures on real interfaces, by the command line."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyroute2 import IPRoute
from scapy.packet import Raw
from scapy.utils import PcapNgReader

from testbed.nodes.linux import inside_network
from tests.traffic.isolation import (
    NEAR,
    Capturing,
    isolated,
    real,
    send_datagrams,
    traffic,
    transfer,
    two_hosts,
)
from tests.traffic.packets import ADDRESS, MAC, frame, network, segment
from traffic import pcapng_writing
from traffic.accounting import account
from traffic.capture_files import CaptureFile, Interface

DATAGRAMS = 20_000


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds, for up to a minute, as the host may be busy."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def records(*paths: Path) -> int:
    found = account(paths)
    assert not found.damage
    return found.totals["records"]


@real
def test_no_packet_is_lost_and_other_tools_read_the_file(tmp_path: Path) -> None:
    file = tmp_path / "all.pcapng"

    def body() -> None:
        two_hosts()
        began = time.time()
        capturing = Capturing(file, "udp")
        send_datagrams(DATAGRAMS, (1, 500, 1400))
        told = capturing.stop()
        assert told == {
            "records": DATAGRAMS,
            "dropped": 0,
            "left_out": 0,
            "bytes": file.stat().st_size,
            "files": ["all.pcapng"],
            "error": None,
            "complete": True,
        }
        found = account([file])
        assert found.totals["records"] == found.totals["frames"] == DATAGRAMS
        sizes = [max(size + 42, 42) for size in (1, 500, 1400)]
        assert found.totals["wire_bytes"] == sum(sizes[i % 3] for i in range(DATAGRAMS))
        assert found.first is not None and found.last is not None
        assert began <= found.first / 1e9 <= found.last / 1e9 <= time.time()

    isolated(body)
    (interface,) = read_interfaces(file)
    assert (interface.name, interface.ticks, interface.link_type) == ("near", 10**9, 1)
    assert (interface.received, interface.dropped) == (DATAGRAMS, 0)
    packets = [packet for packet, _ in zip(PcapNgReader(str(file)), range(3), strict=False)]
    assert [packet.wirelen for packet in packets] == [43, 542, 1442]
    assert all(len(packet) <= 128 for packet in packets)
    if shutil.which("tcpdump"):
        lines = output("tcpdump", "-nn", "-tttt", "--nano", "-r", file).splitlines()
        assert len(lines) == DATAGRAMS
        first = datetime.fromtimestamp(account([file]).first // 10**9, UTC)  # type: ignore[operator]
        assert lines[0].startswith(f"{first:%Y-%m-%d %H:%M:%S}.")
        assert len(lines[0].split()[1].partition(".")[2]) == 9
    if shutil.which("capinfos"):
        told = output("capinfos", file)
        assert "Name = near" in told and "Filter string = udp" in told
        assert "nanoseconds (9)" in told
        assert f"Number of packets = {DATAGRAMS}" in told
    if shutil.which("tshark"):
        size = output("tshark", "-nr", file, "-T", "fields", "-e", "frame.len").split()
        assert len(size) == DATAGRAMS
        assert sum(map(int, size)) == account([file]).totals["wire_bytes"]


def read_interfaces(path: Path) -> list[Interface]:
    file = CaptureFile(path)
    for _ in file.records():
        pass
    return file.interfaces


def output(*command: str | Path) -> str:
    environment = os.environ | {"TZ": "UTC", "LC_ALL": "C"}
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout


@real
def test_drops_are_counted_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "drops.pcapng"

    def body() -> None:
        two_hosts()
        capturing = Capturing(file, "udp", "--ring", "2")
        os.kill(capturing.process.pid, signal.SIGSTOP)
        send_datagrams(DATAGRAMS)
        os.kill(capturing.process.pid, signal.SIGCONT)
        told = capturing.stop()
        assert told["dropped"] > 0
        assert not told["complete"]
        assert told["records"] + told["dropped"] == DATAGRAMS
        assert records(file) == told["records"]
        assert account([file]).dropped == told["dropped"]
        said = traffic("summarize", file)
        assert said.returncode == 0
        assert f"{told['dropped']:,} packets were dropped by the capture" in said.stdout
        assert json.loads(traffic("summarize", "--json", file).stdout)["dropped"] == told["dropped"]

    isolated(body)


@real
def test_files_are_rotated_and_their_sizes_bounded(tmp_path: Path) -> None:
    def body() -> None:
        two_hosts()
        first = tmp_path / "turned.pcapng"
        capturing = Capturing(first, "udp", "--file-size", "70000")
        for _ in range(10):  # packets are written in batches of a tenth of a second
            send_datagrams(300)
            time.sleep(0.15)
        told = capturing.stop()
        paths = [tmp_path / name for name in told["files"]]
        assert told["complete"]
        assert len(paths) > 3
        assert [path.name for path in paths[:2]] == ["turned.pcapng", "turned-2.pcapng"]
        assert all(path.stat().st_size <= 70_000 for path in paths)
        assert sum(path.stat().st_size for path in paths) == told["bytes"]
        assert records(*paths) == sum(records(path) for path in paths) == 3000
        assert all(account([path]).dropped == 0 for path in paths)

        bounded = tmp_path / "bounded.pcapng"
        capturing = Capturing(bounded, "udp", "--total-size", "100000", "--file-size", "70000")
        for _ in range(5):
            send_datagrams(300)
            time.sleep(0.15)
        told = capturing.stop()
        paths = [tmp_path / name for name in told["files"]]
        assert told["left_out"] > 0
        assert not told["complete"]
        assert told["records"] + told["left_out"] == 1500
        assert records(*paths) == told["records"] > 0
        assert sum(path.stat().st_size for path in paths) == told["bytes"] <= 100_000
        assert account(paths).dropped == told["left_out"]

        (tmp_path / "taken-2.pcapng").touch()
        taken = tmp_path / "taken.pcapng"
        capturing = Capturing(taken, "udp", "--file-size", "70000")
        for _ in range(5):
            send_datagrams(300)
            time.sleep(0.15)
        told = capturing.stop(status=1)
        assert "taken-2.pcapng cannot be made" in told["error"]
        assert told["records"] + told["left_out"] == 1500
        assert records(taken) == told["records"] > 0
        assert account([taken]).dropped == told["left_out"]

    isolated(body)


@real
def test_the_file_of_a_killed_capture_is_readable(tmp_path: Path) -> None:
    file = tmp_path / "killed.pcapng"

    def body() -> None:
        two_hosts()
        capturing = Capturing(file, "udp")
        send_datagrams(1000)
        until(lambda: account([file]).totals["records"] == 1000, "all are written")
        capturing.process.kill()
        capturing.process.communicate()
        assert records(file) == 1000
        assert account([file]).dropped is None
        assert "not all files record" in traffic("summarize", file).stdout

    isolated(body)


@real
def test_a_capture_ends_with_its_input_or_at_a_signal(tmp_path: Path) -> None:
    def body() -> None:
        two_hosts()
        for number, end in enumerate((None, signal.SIGINT, signal.SIGTERM)):
            file = tmp_path / f"{number}.pcapng"
            options = ("udp", "--until-input-ends")
            capturing = Capturing(file, *options, stdin=subprocess.PIPE)
            send_datagrams(10)
            if end is None:
                assert capturing.process.stdin is not None
                capturing.process.stdin.close()
                capturing.process.stdin = None
            else:
                capturing.process.send_signal(end)
            told, complaint = capturing.process.communicate(timeout=10)
            assert (capturing.process.returncode, complaint) == (0, "")
            assert json.loads(told)["records"] == records(file) == 10

    isolated(body)


@real
def test_vlan_tags_are_put_back(tmp_path: Path) -> None:
    """The kernel takes the outer tag out of a packet that it receives, and reports it separately."""
    file = tmp_path / "tagged.pcapng"
    tcp = segment("a", 5000, 1, "PA", [])
    frames = [
        frame("a", tags, network(version, "a", False, False) / tcp / Raw(bytes(size)), protocol)
        for tags in (0, 1, 2)
        for version, protocol in ((4, 0x0800), (6, 0x86DD))
        for size in (0, 50, 900)
    ]

    def body() -> None:
        far = two_hosts()
        capturing = Capturing(file)
        with (
            inside_network(far),
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as raw,
        ):
            raw.bind(("far", 0))
            for one in frames:
                raw.send(one)
        assert capturing.stop()["complete"]

    isolated(body)
    with PcapNgReader(str(file)) as reader:
        seen = [packet for packet in reader if packet.src == MAC["a"]]
    assert [packet.wirelen for packet in seen] == [len(one) for one in frames]
    assert [packet.original for packet in seen] == [one[:128] for one in frames]
    found = account([file])
    number = found.pairs.index((ADDRESS[4, "a"], ADDRESS[4, "b"]))
    rows = found.seconds[found.seconds["pair"] == number]
    assert int(rows["wire_bytes"].sum()) == sum(map(len, frames[:3] + frames[6:9] + frames[12:15]))


@real
def test_packets_on_the_loopback_are_captured_once(tmp_path: Path) -> None:
    file = tmp_path / "loopback.pcapng"

    def body() -> None:
        capturing = Capturing(file, interface="lo")
        with (
            socket.create_server(("127.0.0.1", 4000)) as server,
            socket.create_connection(("127.0.0.1", 4000)) as sender,
        ):
            receiver, _ = server.accept()
            with receiver:
                sender.sendall(bytes(60_000))
                received = 0
                while received < 60_000:
                    received += len(receiver.recv(60_000))
        assert capturing.stop()["complete"]
        found = account([file])
        assert found.totals["stream_bytes"] == 60_000
        assert found.totals["retransmitted_bytes"] == 0
        assert set(found.flows["segment"].tolist()) == {65_495}

    isolated(body)


@real
def test_excluded_hosts_are_left_out_by_the_kernel(tmp_path: Path) -> None:
    def body() -> None:
        two_hosts()
        with IPRoute() as netlink:
            for last in range(20, 30):
                index = socket.if_nametoindex("near")
                netlink.addr("add", index=index, address=f"10.9.0.{last}", prefixlen=24)
        hosts = [f"10.9.0.{last}" for last in range(20, 30)]
        options = [part for host in hosts[1:] for part in ("--exclude-host", host)]
        file = tmp_path / "without.pcapng"
        capturing = Capturing(file, *options)
        for host in hosts:
            send_datagrams(10, source=host)
        send_datagrams(7)
        assert capturing.stop()["complete"]
        found = account([file])
        sources = {pair[0] for pair in found.pairs}
        assert sources & {*hosts, NEAR[4]} == {hosts[0], NEAR[4]}
        counts = [r["records"] for r in found.seconds if found.pairs[r["pair"]][0] == hosts[0]]
        assert sum(counts) == 10

    isolated(body)


@real
def test_a_capture_waits_for_its_interface_and_ends_when_it_is_gone(tmp_path: Path) -> None:
    def body() -> None:
        far = two_hosts()
        with IPRoute() as netlink:
            index = socket.if_nametoindex("near")
            netlink.link("set", index=index, state="down")
            capturing = Capturing(tmp_path / "late.pcapng", "udp")
            time.sleep(0.3)
            busy = sum(os_times(capturing.process.pid))
            time.sleep(0.5)
            assert sum(os_times(capturing.process.pid)) - busy < 0.1  # it waits, and does not spin
            netlink.link("set", index=index, state="up")
            send_datagrams(100)
            late = tmp_path / "late.pcapng"
            until(lambda: account([late]).totals["records"] == 100, "all are written")
            netlink.link("del", index=index)
            told, complaint = capturing.process.communicate(timeout=10)
        assert capturing.process.returncode == 1
        assert json.loads(told)["error"] == "the interface near is gone"
        assert complaint == "traffic: the interface near is gone\n"
        assert json.loads(told)["records"] == records(tmp_path / "late.pcapng") == 100
        os.close(far)

    isolated(body)


def os_times(pid: int) -> tuple[float, float]:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    rate = os.sysconf("SC_CLK_TCK")
    return int(ticks[0]) / rate, int(ticks[1]) / rate


@real
def test_a_capture_that_cannot_be_made_is_explained_in_a_sentence(tmp_path: Path) -> None:
    def drop_privilege() -> None:
        ctypes.CDLL(None).prctl(24, 13, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_NET_RAW

    def body() -> None:
        file = tmp_path / "there.pcapng"
        file.touch()
        start = ("capture", "-i", "lo", "-w")
        reports = ("--json", "--report-every", "1")
        for arguments, options, sentence in (
            ((*start, file), {}, "cannot be made (File exists)"),
            ((*start, tmp_path / "no" / "x"), {}, "cannot be made (No such file or directory)"),
            (("capture", "-i", "nix", "-w", tmp_path / "x"), {}, "there is no interface nix"),
            ((*start, tmp_path / "x", "tcp porx"), {}, "the filter 'tcp porx' is not valid"),
            ((*start, tmp_path / "x", "tcp \udcff"), {}, "is not valid"),
            ((*start, tmp_path / "x", "--exclude-host", "fd00::1"), {}, "is not an IPv4 address"),
            (
                (*start, tmp_path / "x", *reports, "--acknowledgements-to", "fd00::1"),
                {},
                "to an IPv4 address only",
            ),
            ((*start, tmp_path / "x"), {"preexec_fn": drop_privilege}, "CAP_NET_RAW"),
        ):
            said = traffic(*arguments, **options)
            assert said.returncode == 1, said
            assert said.stderr.startswith("traffic: ")
            assert sentence in said.stderr
            assert said.stderr.count("\n") == 1
            assert not (tmp_path / "x").exists()
        assert file.stat().st_size == 0

    isolated(body)


@pytest.mark.parametrize("text", ["", "tcp", "tcp or " * 20_000 + "udp", "host \udcff"])
def test_a_file_with_any_filter_and_name_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(pcapng_writing.header("eth\udcff", 128, text, "a test"))
    file = CaptureFile(path)
    assert list(file.records()) == [] and len(file.interfaces) == 1


@real
def test_a_capture_stops_under_load(tmp_path: Path) -> None:
    """Packets that pass afterwards are neither waited for nor reported as lost."""
    file = tmp_path / "load.pcapng"

    def body() -> None:
        far = two_hosts()
        capturing = Capturing(file)
        child = os.fork()
        if child == 0:
            while True:
                send_datagrams(1000)
        try:
            transfer(far, 4, 500_000)
            began = time.monotonic()
            told = capturing.stop()
            assert time.monotonic() - began < 60  # and not for as long as packets come
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert told["complete"]
        assert records(file) == told["records"]

    isolated(body)


@pytest.mark.parametrize("size", [54, 97, 1024])
@real
def test_packets_are_cut_to_the_snap_length(tmp_path: Path, size: int) -> None:
    file = tmp_path / "short.pcapng"

    def body() -> None:
        two_hosts()
        capturing = Capturing(file, "udp", "--snap-length", str(size))
        send_datagrams(30, (0, 30, 53, 900, 1400))
        assert capturing.stop()["records"] == 30
        with PcapNgReader(str(file)) as reader:
            packets = list(reader)
        assert [packet.wirelen for packet in packets] == [42, 72, 95, 942, 1442] * 6
        assert [len(packet) for packet in packets] == [
            min(size, packet.wirelen or 0) for packet in packets
        ]
        assert account([file]).totals["wire_bytes"] == (42 + 72 + 95 + 942 + 1442) * 6

    isolated(body)

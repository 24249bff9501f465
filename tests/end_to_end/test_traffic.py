"""The three ledgers of a real run: they agree, and a change in any of them is detected."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scapy.sendrecv import sniff
from scapy.sessions import TCPSession
from scapy.utils import rdpcap

from testbed.dissection.scapy_layer import Parameters, Push, messages_in
from testbed.runs.ledgers.reconciliation import COUNTED_BYTES, COUNTED_FRAMES, FILES, MESSAGES
from testbed.wire.frames import HEADER
from tests.dissection.as_tshark_reads import as_tshark_reads
from tests.end_to_end.conftest import ENDLESS, SMALL, CommandLine

SLOW = SMALL | {
    "training": {"updates": 150},
    "waiting": {"distribution": "constant", "mean": "50ms"},
    "evaluation": {"every": 20},
}
"""A run in which something ends on its way: 100 updates a second."""

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

SHAPED = SMALL | {
    "training": {"updates": 60},
    "evaluation": {"every": 20},
    "network": {"uplink": "50mbit", "downlink": "100mbit"},
    "algorithms": [{"name": "adacomp", "ratio": 0.02}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a completed run."""
    line = CommandLine(tmp_path_factory.mktemp("traffic"))
    started = line.start_run(SHAPED)
    assert started.wait() == 0, started.said
    yield started.run_directory
    line.close()


@pytest.fixture
def broken(run: Path, tmp_path: Path) -> Path:
    """A copy of the run directory, to be damaged."""
    return Path(shutil.copytree(run, tmp_path / "runs" / run.parents[1].name / "x-1" / run.name))


def again(directory: Path, tmp_path: Path) -> dict[str, Any]:
    """Return the result of ``testbed traffic`` for a run directory."""
    line = CommandLine(tmp_path)
    result = line.do("traffic", directory, "--json")
    assert result.returncode == 0, result.stderr
    (counted,) = json.loads(result.stdout)
    return dict(counted)


def ledgers(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = directory / "traffic" / "ledgers.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def cut_packet(directory: Path, number: int) -> None:
    """Remove the packet with the given number from the capture's file."""
    path = directory / "traffic" / "ingress.pcapng"
    data, place, seen = path.read_bytes(), 0, 0
    while True:
        kind, length = (int.from_bytes(data[place + i : place + i + 4], "little") for i in (0, 4))
        if kind == 6:
            if seen == number:
                path.write_bytes(data[:place] + data[place + length :])
                return
            seen += 1
        place += length


def test_a_run_is_reconciled(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]["differences"]
    assert summary["traffic"]["capture"]["complete"]
    assert summary["traffic"]["capture"]["dropped"] == 0
    table = pq.read_table(run / "traffic" / "accounting.parquet")
    ingress = table.filter(np.array(table["direction"].to_pylist()) == "ingress")

    def total(name: str) -> int:
        return int(ingress[name].to_numpy().sum())

    drained = summary["ingress_after_drain"]
    assert total("wire_bytes") == drained["wire_bytes"]
    assert total("stream_bytes") == drained["message_bytes"]
    assert total("payload_bytes") == drained["payload_bytes"]
    assert total("framing_bytes") == drained["message_bytes"] - drained["payload_bytes"]
    kinds = [name for name in table.column_names if name.endswith("_bytes")]
    split = set(kinds) - {"wire_bytes", "payload_bytes", "framing_bytes"}
    assert sum(map(total, split)) == total("wire_bytes")
    assert set(ingress["device"].to_pylist()) == {f"worker-{i}" for i in range(5)}


@pytest.fixture(scope="module")
def messages(run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The messages that ``testbed traffic --frames`` finds."""
    line = CommandLine(tmp_path_factory.mktemp("frames"))
    told = line.do("traffic", run, "--frames", "--json")
    assert told.returncode == 0, told.stderr
    content = json.loads(told.stdout)
    assert content["damage"] == []
    return list(content["messages"])


def pushes(messages: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Return the worker, base version and payload bytes of each push."""
    return [
        (int(one["source"].removeprefix("worker-")), one["base"], one["bytes"] - HEADER.size)
        for one in messages
        if one.get("kind") == "PUSH"
    ]


def test_the_messages_in_the_capture_are_the_updates_of_the_run(
    run: Path, messages: list[dict[str, Any]]
) -> None:
    table = pq.read_table(run / "updates.parquet")
    names = ("worker", "base_version", "payload_bytes")
    rows = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    for worker in range(5):
        taken = [row for row in rows if row[0] == worker]
        sent = [row for row in pushes(messages) if row[0] == worker]
        # A push that arrived after the last update is in the capture only.
        assert taken and sent[: len(taken)] == taken and len(sent) <= len(taken) + 1
    losses = {(m["source"], m["base"]): m["loss"] for m in messages if m.get("kind") == "PUSH"}
    for worker, base, loss in zip(
        *(table[n].to_pylist() for n in (*names[:2], "loss")), strict=True
    ):
        assert losses[f"worker-{worker}", base] == loss
    connections = json.loads((run / "traffic" / "ledgers.json").read_text())["connections"]
    for one in connections:
        own = [m for m in messages if one["device"] in (m["source"], m["destination"])]
        received = sum(m["bytes"] for m in own if m["destination"] == "server")
        assert received == one["message_bytes"]
        assert sum(m["bytes"] for m in own if m["source"] == "server") == one["sent_bytes"]
    accounts = pq.read_table(run / "traffic" / "accounting.parquet").to_pydict()
    carrying = ("stream_bytes", "header_bytes", "retransmitted_bytes")
    carried = sum(sum(accounts[name]) for name in carrying)
    assert sum(message["wire_bytes"] for message in messages) == carried


def test_scapy_finds_the_same_messages(run: Path, messages: list[dict[str, Any]]) -> None:
    file = str(run / "traffic" / "ingress.pcapng")
    packets = sniff(offline=file, session=TCPSession, quiet=True)
    found = [one for packet in packets for one in messages_in(packet)]
    # A packet that was sent again is one more to scapy.
    seen = dict.fromkeys((one.worker, one.base, one.length) for one in found if Push in one)
    assert list(seen) == pushes(messages)
    answers = dict.fromkeys((m.worker, m.version) for m in found if Parameters in m)
    sent = [
        (int(one["destination"].removeprefix("worker-")), one["version"])
        for one in messages
        if one.get("kind") == "PARAMETERS"
    ]
    assert list(answers) == sent
    whole = [one for packet in rdpcap(file) for one in messages_in(packet)]
    assert [m.kind_of_message for m in whole] == [m.kind_of_message for m in found]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_finds_the_same_messages(
    run: Path, messages: list[dict[str, Any]], tmp_path: Path
) -> None:
    found = as_tshark_reads(run / "traffic" / "ingress.pcapng", tmp_path)
    names = ("testbed.worker", "testbed.base", "testbed.length")
    seen = dict.fromkeys(
        tuple(int(one[name]) for name in names) for one in found if one["testbed.kind"] == "5"
    )
    assert list(seen) == pushes(messages)


def test_messages_are_printed_a_line_each(run: Path, messages: list[dict[str, Any]]) -> None:
    line = CommandLine(run.parents[3])
    told = line.do("traffic", run, "--frames").stdout.splitlines()
    assert f"{len(messages)} messages" in told[0] and len(told) == len(messages) + 2
    first = next(text for text in told if " PUSH " in text)
    assert "worker-" in first and "→ server" in first and "base=0, loss=" in first
    refused = line.do("traffic", "--frames", "nothing")
    assert refused.returncode != 0 and "nothing" in refused.stderr
    script = line.do("traffic", "--dissector").stdout
    assert 'Proto("testbed"' in script and "tcp.port" in script


def test_counters_are_on_record_from_beginning_to_end(run: Path) -> None:
    table = pq.read_table(run / "traffic" / "counters.parquet")
    device = np.array(table["device"].to_pylist())
    assert set(device) == {"server", "evaluator", *(f"worker-{i}" for i in range(5))}
    summary = json.loads((run / "summary.json").read_text())
    server = table.filter(device == "server")
    assert server["interface"].to_pylist()[0] == "link0"
    counted = server["class_bytes"].to_numpy()
    assert counted[0] == 0 and counted[-1] == summary["ingress_after_drain"]["wire_bytes"]
    uplinks = [table.filter(device == f"worker-{i}")["class_bytes"].to_numpy() for i in range(5)]
    # All bytes that the workers' uplinks let through have reached the server's link.
    assert sum(int(one[-1]) for one in uplinks) == counted[-1]


def test_a_recount_by_the_command_agrees(run: Path, tmp_path: Path) -> None:
    counted = again(run, tmp_path)
    assert counted["reconciled"] is True and counted["damage"] == []
    line = CommandLine(tmp_path)
    said = line.do("traffic", run).stdout
    assert "reconciled: messages equal TCP streams" in said
    assert "worker-3" in said and "payload" in said


def test_a_path_and_a_name_are_printed_as_they_are(broken: Path, tmp_path: Path) -> None:
    """Rich takes no part of them for markup, and the terminal acts on none."""
    where = tmp_path / "a[b][/c]:ab:" / broken.name
    where.parent.mkdir(parents=True)
    broken.rename(where)

    def change(content: dict[str, Any]) -> None:
        names = content["devices"]
        content["devices"] = {at: f"{name}[/d]:ab:\x1b" for at, name in names.items()}

    ledgers(where, change)
    for options in ([], ["--frames"]):
        said = CommandLine(tmp_path).do("traffic", where, *options)
        assert said.returncode == 0, said.stderr
        assert "[/c]:ab:/" in said.stdout and "worker-3[/d]:ab:\\x1b" in said.stdout


def test_of_a_resumed_run_the_last_session_is_shown(broken: Path, tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    assert "last session" not in line.do("traffic", broken).stdout
    (broken / "traffic" / "earlier-1").mkdir()
    assert "(of the run's last session; " in line.do("traffic", broken).stdout


@pytest.mark.parametrize("name", ["message_bytes", "incomplete_bytes"])
def test_a_role_that_reports_another_number_is_caught(
    broken: Path, tmp_path: Path, name: str
) -> None:
    def change(content: dict[str, Any]) -> None:
        content["connections"][2][name] += 1

    ledgers(broken, change)
    counted = again(broken, tmp_path)
    assert counted["reconciled"] is False
    (difference,) = counted["differences"]
    assert difference["ledgers"] == f"{MESSAGES}, to the server"
    assert difference["expected"] == difference["found"] + 1
    assert difference["device"].startswith("worker-")


def test_a_wrong_number_of_bytes_sent_by_the_server_is_caught(broken: Path, tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["connections"][0]["sent_bytes"] -= 1

    ledgers(broken, change)
    (difference,) = again(broken, tmp_path)["differences"]
    assert difference["ledgers"] == f"{MESSAGES}, from the server"


def test_a_connection_that_the_server_did_not_report_is_caught(
    broken: Path, tmp_path: Path
) -> None:
    ledgers(broken, lambda content: content["connections"].pop())
    differences = again(broken, tmp_path)["differences"]
    assert [one["reason"] for one in differences] == ["the server told of no such connection"] * 2


@pytest.mark.parametrize(("name", "which"), [("frames", COUNTED_FRAMES), ("bytes", COUNTED_BYTES)])
def test_a_counter_that_is_off_by_one_is_caught(
    broken: Path, tmp_path: Path, name: str, which: str
) -> None:
    def change(content: dict[str, Any]) -> None:
        content["counter"][name] += 1

    ledgers(broken, change)
    (difference,) = again(broken, tmp_path)["differences"]
    assert (difference["ledgers"], difference["device"]) == (which, None)
    assert difference["expected"] == difference["found"] + 1


def test_a_packet_that_is_missing_from_the_capture_is_caught(broken: Path, tmp_path: Path) -> None:
    records = again(broken, tmp_path)["capture"]["records"]
    cut_packet(broken, records // 2)
    counted = again(broken, tmp_path)
    assert counted["reconciled"] is False
    whole = next(one for one in counted["differences"] if one["ledgers"] == FILES)
    assert whole["expected"] == whole["found"] + 1


def test_packets_dropped_by_the_capture_are_the_reported_reason(
    broken: Path, tmp_path: Path
) -> None:
    def change(content: dict[str, Any]) -> None:
        content["capture"]["dropped"] = 7
        content["counter"]["frames"] += 7

    ledgers(broken, change)
    (difference,) = again(broken, tmp_path)["differences"]
    assert difference["reason"] == "the capture dropped 7 packets"
    line = CommandLine(tmp_path)
    told = json.loads(line.do("traffic", broken, "--frames", "--json").stdout)
    assert told["damage"] == ["the capture dropped 7 packets"]
    assert "the capture dropped 7 packets" in line.do("traffic", broken, "--frames").stderr


def test_a_bound_on_the_capture_is_kept_and_reported(command: CommandLine) -> None:
    started = command.start_run(SMALL | {"traffic": {"file_size": "64KiB", "total_size": "128KiB"}})
    assert started.wait() == 0, started.said
    traffic = started.record("summary")["traffic"]
    assert traffic["capture"]["left_out"] > 0 and not traffic["capture"]["complete"]
    assert traffic["capture"]["bytes"] <= 128 * 1024
    assert traffic["reconciled"] is False
    assert "raise traffic.total_size" in traffic["differences"][0]["reason"]


def test_the_capture_can_be_switched_off(command: CommandLine) -> None:
    started = command.start_run(SMALL | {"traffic": {"capture": False}}, report=True)
    assert started.wait() == 0, started.said
    expected: dict[str, Any] = {"capture": None, "reconciled": None, "differences": []}
    assert started.record("summary")["traffic"] == expected
    assert not list((started.run_directory / "traffic").glob("*.pcapng"))
    result = command.do("traffic", started.run_directory)
    assert result.returncode == 2 and "was not captured" in result.stderr


def test_a_simulation_has_no_capture(command: CommandLine) -> None:
    spec = command.spec(SMALL | {"training": {"updates": 5}})
    assert command.do("simulate", spec, "--no-report").returncode == 0
    for options in ([], ["--frames"]):
        refused = command.do("traffic", *options)
        assert refused.returncode == 2 and "is a simulation: its wire bytes" in refused.stderr


def test_a_capture_that_dies_is_reported_and_the_run_goes_on(command: CommandLine) -> None:
    started = command.start_run(SLOW)
    started.until_training()
    started.capture.kill()
    assert started.wait() == 0, started.said
    assert "the capture ended before the run did" in started.said
    traffic = started.record("summary")["traffic"]
    assert traffic["reconciled"] is False
    assert "the capture ended early" in traffic["differences"][0]["reason"]
    said = command.do("traffic", started.run_directory)
    assert said.returncode == 0, said.stderr
    assert f"{traffic['capture']['records']:,} packets captured, an unknown number" in said.stdout
    how = ("--speed", "0", "--metrics-port", "0", "--metrics-linger", "1ms")
    said = command.do("replay", started.run_directory, *how)
    assert said.returncode == 0, said.stderr


def test_a_run_cut_short_has_its_capture(command: CommandLine) -> None:
    started = command.start_run(ENDLESS)
    started.until_training()
    started.interrupt()
    assert started.wait() == 130
    traffic = started.record("summary")["traffic"]
    assert traffic["reconciled"] is None
    assert traffic["capture"]["records"] > 200 and not traffic["capture"]["complete"]
    assert (started.run_directory / "traffic" / "accounting.parquet").exists()
    said = command.do("traffic", started.run_directory).stdout
    assert "not compared" in said
    # Bytes after a device's last update may be part of a push, so they do not count as framing.
    table = pq.read_table(started.run_directory / "traffic" / "accounting.parquet")
    framing, stream = (int(table[n].to_numpy().sum()) for n in ("framing_bytes", "stream_bytes"))
    updates = started.record("summary")["updates"]
    assert 0 < framing <= 5 * 96 + 64 * updates < stream


def test_a_run_that_was_killed_has_its_capture(command: CommandLine) -> None:
    started = command.start_run(ENDLESS)
    started.until_training()
    traces = started.traces()
    started.process.kill()
    traces.assert_gone(20)
    result = command.do("traffic", started.run_directory)
    assert result.returncode == 0, result.stderr
    assert "worker-3" in result.stdout and "not compared" in result.stdout
    (started.run_directory / "traffic" / "ingress-old.pcapng").touch()  # not the capture's
    assert command.do("traffic", started.run_directory, "--json").returncode == 0


def test_workers_that_die_do_not_break_the_ledgers(command: CommandLine) -> None:
    started = command.start_run(SLOW)
    started.until_training()
    for name in ("worker-1", "worker-3"):
        started.nodes()[name].kill()
    assert started.wait() == 0, started.said
    traffic = started.record("summary")["traffic"]
    assert traffic["reconciled"] is True, traffic["differences"]

"""Whole runs over shaped links: measured as asked during training, and with ledgers that agree."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import CommandLine, Started
from tests.kernels.conftest import Measured, qdiscs
from tests.kernels.measuring import fastest, round_trips, stream

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("netem")]
LIMIT = 1200.0
"""Seconds that a run may take in a guest, which is emulated."""

SHAPED: dict[str, Any] = {
    "name": "shaped",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 60},
    "algorithms": ["asgd"],
    "devices": {"workers": 4},
    "network": {"uplink": "5mbit", "downlink": "20mbit", "delay": "40ms", "loss": "2%"},
    "waiting": {"distribution": "constant", "mean": "500ms"},
    "evaluation": {"every": 20},
}


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def until(happened: Callable[[], bool], started: Started) -> None:
    """Wait until ``happened`` is true while a run is under way, for at most ``LIMIT`` seconds."""
    deadline = time.monotonic() + LIMIT
    while not happened():
        assert started.process.poll() is None, started.said
        assert time.monotonic() < deadline, started.said
        time.sleep(0.1)


def _has_nodes(started: Started) -> bool:
    """Return True if every device exists: the evaluation of the start is in."""
    return len(started.curve().splitlines()) > 1


def assert_reconciled(started: Started, updates: int) -> dict[str, Any]:
    """Assert that a run has completed and its three ledgers agree; return its summary."""
    summary = started.record("summary")
    assert (summary["ended"], summary["updates"]) == ("completed", updates), started.said
    differences = json.dumps(summary["traffic"]["differences"], indent=1)
    assert summary["traffic"]["reconciled"] is True, differences
    return summary


def sent_again(process: int) -> int:
    """Return the number of TCP segments that a process's network namespace has retransmitted."""
    lines = Path(f"/proc/{process}/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(dict(zip(names, values, strict=True))["RetransSegs"])


def group_events(started: Started, device: str) -> str:
    """Return the text of ``cgroup.events`` of a device's control group."""
    (found,) = Path("/sys/fs/cgroup").rglob(f"testbed-{started.agent.pid}-*/{device}/cgroup.events")
    return found.read_text()


def test_links_keep_their_shape_in_a_run_with_a_frozen_device(
    command: CommandLine, measured: Measured
) -> None:
    """A frozen device leaves its link idle, so the link is measured while the others train."""
    rule = {
        "who": {"devices": ["worker-1"]},
        "when": {"iteration": 15},
        "how": "freeze",
        "lasting": "40s",
    }
    # The three others push at most twice a second, so training lasts longer than the freeze.
    training = {"updates": 300}
    started = command.start_run(SHAPED | {"training": training, "faults": [rule]})
    until(lambda: _has_nodes(started), started)
    traces, nodes = started.traces(), started.nodes()
    worker, workers = nodes["worker-1"], [nodes[f"worker-{i}"].pid for i in range(4)]
    device, core = (
        os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY) for process in (worker, started.agent)
    )
    # The agent freezes and thaws the device repeatedly until it holds no turn at computing.
    since = time.monotonic()
    while time.monotonic() - since < 1.0:
        assert started.process.poll() is None, started.said
        if "frozen 1" not in group_events(started, "worker-1"):
            since = time.monotonic()
        time.sleep(0.05)
    computed = worker.cpu_times()
    time.sleep(3.0)
    assert worker.cpu_times() == computed
    # The core's end of the link answers, so that nothing passes the server's counted link.
    core_address = "10.77.0.6"
    rate = fastest(lambda: stream(device, core, core_address, 600), 5_000_000)
    delay = min(round_trips(device, core_address, 10))
    netem = qdiscs(worker.pid)["netem"]
    until(lambda: "frozen 0" in group_events(started, "worker-1"), started)
    frozen_for = time.monotonic() - since
    segments = sum(sent_again(process) for process in workers)
    os.close(device)
    os.close(core)
    assert started.wait(LIMIT) == 0, started.said
    traces.assert_gone(60)
    assert_reconciled(started, training["updates"])
    measured("in a run: uplink", "5.00 Mbit/s", f"{rate.rate / 1e6:.2f} Mbit/s")
    measured("in a run: delay", "40.0 ms", f"{delay * 1e3:.1f} ms")
    measured("in a run: frozen for", "40.0 s", f"{frozen_for:.1f} s")
    measured("in a run: segments sent again", "", f"{segments}")
    options = netem["options"]
    assert options["loss-random"]["loss"] == pytest.approx(0.02)
    assert options["delay"]["delay"] == pytest.approx(0.04)
    assert netem["drops"] > 0 and segments > 0
    assert 0.04 <= delay < 0.07
    assert 0.9 * 5e6 < rate.rate < 1.03 * 5e6
    assert 38 < frozen_for < 80  # late on a busy host, never early


def test_ledgers_agree_where_frames_are_damaged(command: CommandLine, measured: Measured) -> None:
    rule = {
        "who": {"devices": [f"worker-{i}" for i in range(4)]},
        "when": {"time": "0.1s"},
        "how": {"kind": "corrupt", "share": "3%"},
    }
    waiting = {"distribution": "constant", "mean": "100ms"}
    content = SHAPED | {"network": {}, "faults": [rule], "waiting": waiting}
    started = command.start_run(content)
    assert started.wait(LIMIT) == 0, started.said
    assert_reconciled(started, SHAPED["training"]["updates"])
    account = pq.read_table(started.run_directory / "traffic" / "accounting.parquet")
    again = sum(account["retransmitted_bytes"].to_pylist())
    # The capture sees damaged frames and their retransmissions.
    measured("damaged frames 3 %: sent again", "", f"{again / 1e3:.0f} kB")
    assert again > 0


ECHO = """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read(100_000))
socketserver.ThreadingTCPServer(("", 8000), Echo).serve_forever()
"""
ASK = """
import os, socket, time
data = os.urandom(100_000)
for _ in range(20):
    with socket.create_connection(("server", 8000)) as one, one.makefile("rb") as reply:
        one.sendall(data)
        assert reply.read() == data
    time.sleep(0.2)
"""
ECHOING: dict[str, Any] = {
    "name": "echoing",
    "programs": {
        "echo": {"on": "server", "run": "python3 echo.py", "ready": {"tcp": 8000}},
        "ask": {"on": "workers", "after": "echo", "ends": "run", "run": "python3 ask.py"},
    },
    "files": ["echo.py", "ask.py"],
    "devices": {"workers": 3},
    "network": {"uplink": "5mbit", "downlink": "20mbit", "delay": "20ms"}
    | {"loss": {"up": "1%", "down": "1%"}},
    "faults": [
        {
            "who": {"devices": ["worker-0"]},
            "when": {"time": "3s"},
            "how": "freeze",
            "lasting": "3s",
        },
        {"who": {"devices": ["worker-1"]}, "when": {"time": "4s"}, "how": "kill", "lasting": "2s"},
    ],
    "limits": {"time": "10min"},
}


def test_bytes_of_programs_agree_where_frames_are_lost_and_devices_die(
    command: CommandLine, measured: Measured
) -> None:
    (command.folder / "echo.py").write_text(ECHO)
    (command.folder / "ask.py").write_text(ASK)
    started = command.start_run(ECHOING)
    assert started.wait(LIMIT) == 0, started.said
    summary = started.record("summary")
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]["differences"]
    told = command.do("traffic", "latest", "--runs", command.out, "--json")
    (counted,) = json.loads(told.stdout)
    streams = dict.fromkeys(("ingress", "egress"), 0)
    again = dict(streams)
    for one in counted["ports"]:
        streams[one["direction"]] += one["stream_bytes"]
        again[one["direction"]] += one["retransmitted_bytes"]
    assert all(size > 3 * 20 * 100_000 for size in streams.values()), streams
    # What is lost towards the server never came to the capture: only what the server lost shows.
    share = again["egress"] / streams["egress"]
    measured("bytes of programs that the server sent again", "1 %", f"{100 * share:.2f} %")
    assert 0.003 < share < 0.03, again

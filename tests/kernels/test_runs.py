"""Whole runs over shaped links: what is asked is measured while they train, and the ledgers agree."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import CommandLine, Started
from tests.kernels.conftest import Measured, qdiscs
from tests.kernels.measuring import round_trips, stream

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("netem")]
LIMIT = 1200.0
"""Seconds that a run may take in a guest, which is emulated."""

SHAPED: dict[str, Any] = {
    "name": "shaped",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 150},
    "algorithms": ["asgd"],
    "devices": {"workers": 4},
    "network": {"uplink": "5mbit", "downlink": "20mbit", "delay": "40ms", "loss": "2%"},
    "waiting": {"distribution": "constant", "mean": "500ms"},
    "evaluation": {"every": 50},
}


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def until_training(started: Started) -> None:
    """Wait until the first evaluation after the start is in, however long the libraries take."""
    deadline = time.monotonic() + LIMIT
    while len(started.curve().splitlines()) < 3:
        assert started.process.poll() is None, started.said
        assert time.monotonic() < deadline, started.said
        time.sleep(0.5)


def assert_reconciled(started: Started, updates: int) -> dict[str, Any]:
    """A run has completed, and its three ledgers agree; returns the summary."""
    summary = started.record("summary")
    assert (summary["ended"], summary["updates"]) == ("completed", updates), started.said
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]["differences"]
    return summary


def retransmitted(started: Started) -> tuple[int, int]:
    """Bytes that workers sent again, and bytes of their streams."""
    account = pq.read_table(started.run_directory / "traffic" / "accounting.parquet").to_pydict()
    again = total = 0
    for i, direction in enumerate(account["direction"]):
        if direction == "ingress" and account["device"][i].startswith("worker"):
            again += account["retransmitted_bytes"][i]
            total += account["stream_bytes"][i]
    return again, total


def group_events(started: Started, device: str) -> str:
    """What the kernel says of a device's control group."""
    (found,) = Path("/sys/fs/cgroup").rglob(f"testbed-{started.agent.pid}-*/{device}/cgroup.events")
    return found.read_text()


def test_a_run_over_shaped_links_with_a_freeze(command: CommandLine, measured: Measured) -> None:
    faults = [
        {
            "who": {"devices": ["worker-1"]},
            "when": {"iteration": 60},
            "how": "freeze",
            "lasting": "8s",
        }
    ]
    started = command.start_run(SHAPED | {"faults": faults})
    until_training(started)
    traces, worker = started.traces(), started.nodes()["worker-0"]
    device, core = (
        os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY) for process in (worker, started.agent)
    )
    # worker-0's link is the third. Its core's end answers, so that nothing passes the server's link.
    core_address = "10.77.0.4"
    frozen_for = 0.0
    while not _frozen(started):
        assert started.process.poll() is None, started.said
        time.sleep(0.1)
    began = time.monotonic()
    assert "frozen 1" in group_events(started, "worker-1")
    while _frozen(started):
        frozen_for = time.monotonic() - began
        time.sleep(0.1)
    delay = min(round_trips(device, core_address, 10))
    found = stream(device, core, core_address, 1500)
    netem = qdiscs(worker.pid)["netem"]
    os.close(device)
    os.close(core)
    assert started.wait(LIMIT) == 0, started.said
    traces.assert_gone(60)
    assert_reconciled(started, SHAPED["training"]["updates"])
    again, total = retransmitted(started)
    measured("in a run: uplink", "5.00 Mbit/s", f"{found.rate / 1e6:.2f} Mbit/s")
    measured("in a run: delay", "40.0 ms", f"{delay * 1e3:.1f} ms")
    measured("in a run: loss", "2.0 %", f"{found.lost * 100:.1f} %")
    measured("in a run: frozen for", "8.0 s", f"{frozen_for:.1f} s")
    measured("in a run: sent again", "", f"{again / 1e3:.0f} of {total / 1e3:.0f} kB")
    assert netem["options"]["loss-random"]["loss"] == pytest.approx(0.02)
    assert 0.04 <= delay < 0.08
    # The worker's own pushes share the link with the stream.
    assert 0.6 * 5e6 < found.rate < 1.05 * 5e6
    assert 0.005 < found.lost < 0.05
    assert 6 < frozen_for < 12
    assert again > 0 and netem["drops"] > 0


def _frozen(started: Started) -> bool:
    return "frozen 1" in group_events(started, "worker-1")


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
    again, total = retransmitted(started)
    measured("damaged frames 3 %: sent again", "", f"{again / 1e3:.0f} of {total / 1e3:.0f} kB")
    assert again > 0


def test_the_doctor_misses_nothing(command: CommandLine) -> None:
    result = command.do("doctor", "--json")
    found = {one["what"]: one for one in json.loads(result.stdout)}
    assert (result.returncode, result.stderr) == (0, "")
    for what in ("namespaces", "control groups", "sch_htb", "cls_u32", "sch_netem"):
        assert found[what]["state"] == "ok", found[what]
    assert found["control groups"]["found"] == "v2, writable"
    assert found["packet capture"]["state"] == "ok"

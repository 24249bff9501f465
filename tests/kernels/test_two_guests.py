"""Runs that are spread over two guests, which are two hosts: each has a kernel of its own.

The way between them takes ``WAY_DELAY``, by netem on their network devices.
"""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kernels.in_guest import OTHER_GUEST, WAY_DELAY
from tests.end_to_end.conftest import CommandLine, Started
from tests.kernels.conftest import Measured
from tests.kernels.measuring import round_trips

OTHER = os.environ.get(OTHER_GUEST, "")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not OTHER, reason="there is no second guest: `make kernels` boots two"),
]
LIMIT = 1200.0
"""Seconds that a command may take in a guest, which is emulated."""
SPEC: dict[str, Any] = {
    "name": "two-guests",
    "dataset": "digits",
    "model": "mlp",
    "clock": "virtual",
    "training": {"updates": 40},
    "algorithms": ["asgd"],
    "devices": {"workers": 4},
    "network": {"uplink": "5mbit", "downlink": "20mbit"},
    "waiting": {"distribution": "constant", "mean": "500ms"},
    "evaluation": {"every": 20, "images": 100},
}


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    hosts = {"underlay": OTHER[:-1] + "1", "hosts": {"b": {"agent": OTHER}}}
    hosts["place"] = {"worker-2..3": "b"}
    (tmp_path / "hosts.yaml").write_text(yaml.safe_dump(hosts))
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            socket.create_connection((OTHER, 14790), 10).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "the agent of the other guest does not answer"
            time.sleep(1)
    yield line
    line.close()


def completed(started: Started) -> dict[str, Any]:
    """Wait for a run's end; return its summary."""
    assert started.wait(LIMIT) == 0, started.said
    summary = started.record("summary")
    assert (summary["ended"], summary["traffic"]["reconciled"]) == ("completed", True), summary
    return summary


def test_a_run_over_two_guests_ends_with_the_bits_of_the_simulator(command: CommandLine) -> None:
    freeze = {"who": {"devices": ["worker-2"]}, "how": "freeze", "when": {"time": "300ms"}}
    spec = SPEC | {"faults": [freeze | {"lasting": "500ms"}]}
    spread = completed(command.start_run(spec, "--hosts", "hosts.yaml"))
    simulation = command.start("simulate", command.folder / "spec.yaml", "--json", "--no-report")
    assert simulation.wait(LIMIT) == 0, simulation.said
    (simulated,) = json.loads(simulation.output.read_bytes())["runs"]
    for what in ("parameters_sha256", "updates", "training_seconds", "faults"):
        assert spread[what] == simulated[what]
    for what in ("payload_bytes", "message_bytes"):
        assert spread["ingress"][what] == simulated["ingress"][what]


def test_a_link_that_crosses_has_the_delay_asked_and_not_the_way_s_as_well(
    command: CommandLine, measured: Measured
) -> None:
    network = SPEC["network"] | {"delay": {"up": "60ms", "down": "60ms"}}
    spec = SPEC | {"clock": "wall", "network": network, "training": {"updates": 60}}
    started = command.start_run(spec, "--hosts", "hosts.yaml")
    deadline = time.monotonic() + LIMIT
    while len(started.curve().splitlines()) < 2:
        assert started.process.poll() is None and time.monotonic() < deadline, started.said
        time.sleep(0.1)
    core = os.open(f"/proc/{started.agent.pid}/ns/net", os.O_RDONLY)
    found = {kind: min(round_trips(core, to, 24)) for kind, to in far_ends(core).items()}
    os.close(core)
    completed(started)
    way = started.record("manifest")["hosts"]["b"]["delay"]
    measured("the way to the other guest", f"{WAY_DELAY * 1e3:.1f} ms", f"{way * 1e3:.1f} ms")
    measured("round trip, the device on this guest", "120.0 ms", f"{found['veth'] * 1e3:.1f} ms")
    measured("round trip, on the other guest", "120.0 ms", f"{found['vxlan'] * 1e3:.1f} ms")
    assert WAY_DELAY <= way < WAY_DELAY + 0.01
    for trip in found.values():
        # The probe's tolerance, in each direction.
        assert 0.9 * 0.12 <= trip <= 1.1 * 0.12 + 2 * 0.002, found


def far_ends(core: int) -> dict[str, str]:
    """Return an address of a worker at the far end of a link, for each kind of link in the core."""
    shown = subprocess.run(
        ["nsenter", f"--net=/proc/self/fd/{core}", "ip", "-d", "-j", "address"],
        check=True,
        capture_output=True,
        pass_fds=[core],
    )
    found = {}
    for one in json.loads(shown.stdout):
        kind = one.get("linkinfo", {}).get("info_kind")
        for address in one["addr_info"]:
            if kind in ("veth", "vxlan") and address.get("prefixlen") == 31:
                head, _, last = address["local"].rpartition(".")
                found[kind] = f"{head}.{int(last) ^ 1}"  # the last of the links is a worker's
    return found


def test_less_than_the_way_takes_is_refused_unless_it_is_accepted(
    command: CommandLine, measured: Measured
) -> None:
    network = SPEC["network"] | {"delay": {"up": "5ms", "down": "60ms"}}
    spec = SPEC | {"clock": "wall", "network": network}
    refused = command.start_run(spec, "--hosts", "hosts.yaml")
    assert refused.wait(LIMIT) == 1
    text = re.search(
        r"the uplink is to have a delay of 5 ms, and the way to host b alone", refused.said
    )
    assert text, refused.said
    assert not command.out.exists()
    accepted = command.start_run(spec, "--hosts", "hosts.yaml", "--accept-underlay")
    completed(accepted)
    assert "more than asked (--accept-underlay)" in accepted.said
    (added,) = (
        one["added"]
        for one in accepted.record("manifest")["underlay"]
        if (one["direction"], one["host"]) == ("uplink", "b")
    )
    measured("what the way adds to an uplink of 5 ms", "10.0 ms", f"{added * 1e3:.1f} ms")
    assert WAY_DELAY - 0.005 <= added < WAY_DELAY + 0.005

"""Runs spread over three hosts: network namespaces that an underlay of 1,500 bytes joins."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import testbed
from testbed.nodes import run_names
from tests.end_to_end.conftest import REPOSITORY, until
from tests.traffic.isolation import real

pytestmark = [
    pytest.mark.exercises("namespaces"),
    pytest.mark.skipif(os.geteuid() != 0, reason="links between hosts need root"),
]
UNDERLAY = "10.98.0."
TESTBED = [sys.executable, "-m", "testbed"]
SPEC = {
    "name": "spread",
    "dataset": "digits",
    "model": "mlp",
    "clock": "virtual",
    "training": {"batch_size": 10, "updates": 60},
    "algorithms": ["asgd", {"name": "adacomp", "ratio": 0.05}],
    "devices": {"workers": 6, "servers": 2},
    "network": {
        "uplink": "20mbit",
        "downlink": "50mbit",
        "clusters": [
            {"name": "campus", "share": "50%", "uplink": "30mbit", "downlink": "60mbit"},
            {"name": "village", "share": "50%", "uplink": "10mbit", "downlink": "20mbit"},
        ],
    },
    "compute": {"mean": "20ms"},
    "evaluation": {"every": 20, "images": 100},
}


@dataclass
class Host:
    """A host: a process in a network namespace of its own, and its address in the underlay."""

    process: psutil.Popen
    address: str

    def popen(self, *command: str, log: Path, folder: Path) -> psutil.Popen:
        """Start a command on this host."""
        enter = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "--", *command]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        with log.open("wb") as output:
            return psutil.Popen(enter, stdout=output, stderr=output, cwd=folder, env=environment)


@dataclass
class Hosts:
    """Three hosts, on the second and third of which agents wait."""

    folder: Path
    home: Host
    agents: dict[str, psutil.Popen]

    def run(self, out: str, **settings: Any) -> psutil.Popen:
        """Start a run that is spread over all of them."""
        (self.folder / f"{out}.yaml").write_text(yaml.safe_dump(SPEC | settings))
        arguments = ["run", f"{out}.yaml", "--hosts", "hosts.yaml", "--out", out, "--no-report"]
        log = self.folder / f"{out}.log"
        return self.home.popen(*TESTBED, *arguments, log=log, folder=self.folder)

    def said(self, out: str) -> str:
        return (self.folder / f"{out}.log").read_text()

    def agents_of_runs(self, name: str) -> list[psutil.Process]:
        """Return the agents of runs that a host's agent has started."""
        family = self.agents[name].children(recursive=True)
        return [one for one in family if _title(one) == run_names.AGENT]

    def left(self) -> list[str]:
        """Return the titles of the processes that the hosts' agents have started, and still run."""
        families = [agent.children(recursive=True) for agent in self.agents.values()]
        return [_title(one) for family in families for one in family]


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return "".join(process.cmdline()[:1])
    return ""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    started = [psutil.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(4)]
    hub, *others = started
    agents: dict[str, psutil.Popen] = {}
    try:
        for one in started:
            until(lambda of=one: of.name() == "sleep", "a namespace", 20)  # type: ignore[misc]
            _inside(hub if one is hub else one, "ip link set lo up")
        _inside(hub, "ip link add name joint type bridge")
        _inside(hub, "ip link set joint up")
        for number, one in enumerate(others, 1):
            _inside(hub, f"ip link add name h{number} type veth peer name under netns {one.pid}")
            _inside(hub, f"ip link set dev h{number} master joint up")
            _inside(one, f"ip address add {UNDERLAY}{number}/24 dev under")
            _inside(one, "ip link set dev under up")
        home, *elsewhere = (Host(one, f"{UNDERLAY}{n}") for n, one in enumerate(others, 1))
        (tmp_path / "secret").write_text("0123456789abcdef\n")
        for name, host in zip(("b", "c"), elsewhere, strict=True):
            arguments = ["agent", "--listen", host.address, "--secret-file", "secret"]
            log = tmp_path / f"agent-{name}.log"
            agents[name] = host.popen(*TESTBED, *arguments, log=log, folder=tmp_path)
            until(lambda of=log: "waiting on" in of.read_text(), "an agent", 60)  # type: ignore[misc]
        named = {name: {"agent": host.address} for name, host in zip("bc", elsewhere, strict=True)}
        content = {"underlay": home.address, "secret_file": "secret", "hosts": named}
        (tmp_path / "hosts.yaml").write_text(yaml.safe_dump(content))
        yield Hosts(tmp_path, home, agents)
    finally:
        for one in (*agents.values(), *started):
            one.kill()
            one.wait()


def _inside(process: psutil.Popen, command: str) -> None:
    subprocess.run(["nsenter", f"--net=/proc/{process.pid}/ns/net", *command.split()], check=True)


@real
@pytest.mark.timeout(300)
def test_three_hosts_end_with_the_bits_of_one_and_leave_nothing(hosts: Hosts) -> None:
    doctor = [*TESTBED, "doctor", "--hosts", "hosts.yaml", "--json"]
    log = hosts.folder / "doctor.json"
    assert hosts.home.popen(*doctor, log=log, folder=hosts.folder).wait(100) == 0, log.read_text()
    found = json.loads(log.read_bytes())
    assert [*found["hosts"]] == ["this host", "host b", "host c"]
    for findings in found["hosts"].values():
        (tunnels,) = (one for one in findings if one["what"] == "tunnels")
        assert tunnels["state"] == "ok", tunnels["found"]
    ways = {(way["source"], way["target"]): way["measured"] for way in found["ways"]}
    assert [*ways] == [("this host", "b"), ("this host", "c"), ("b", "c")]
    for way in ways.values():
        assert way["mtu"] == 1500
        assert min(way["there"], way["back"]) > 1e6
        assert abs(way["clock_behind"]) <= way["clock_error"]

    process = hosts.run("spread")
    assert process.wait(200) == 0, hosts.said("spread")
    experiment = testbed.Experiment.parse(yaml.safe_dump(SPEC | {"engine": "simulation"}))
    alone = testbed.simulate(experiment, out=hosts.folder / "alone", progress=False)
    summaries = [
        json.loads(path.read_bytes())
        for path in sorted(hosts.folder.glob("spread/*/*/*/summary.json"))
    ]
    assert len(summaries) == 2
    for summary in summaries:
        one_host = json.loads(
            (alone.directory / summary["algorithm"] / "summary.json").read_bytes()
        )
        assert summary["parameters_sha256"] == one_host["parameters_sha256"]
        for what in ("payload_bytes", "message_bytes"):
            assert summary["ingress"][what] == one_host["ingress"][what]
        assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]
    manifest = json.loads(next(hosts.folder.glob("spread/*/*/asgd/manifest.json")).read_bytes())
    assert {name: one["devices"] for name, one in manifest["hosts"].items()} == {"b": 2, "c": 2}
    assert all(one["clock"] and one["clock_at_end"] for one in manifest["hosts"].values())
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)


@real
@pytest.mark.timeout(300)
def test_an_end_of_one_is_the_end_of_all(hosts: Hosts) -> None:
    long = {"training": {"batch_size": 10, "updates": 1_000_000}, "algorithms": ["asgd"]}

    def trains(out: str) -> psutil.Popen:
        process = hosts.run(out, **long)
        until(lambda: "asgd: training, " in hosts.said(out), "training", 100)
        assert len(hosts.left()) > 4
        return process

    process = trains("agent-killed")
    (agent,) = hosts.agents_of_runs("c")
    agent.kill()
    assert process.wait(60) == 1
    assert "asgd failed: the agent of host c died" in hosts.said("agent-killed")
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)

    process = trains("interrupted")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, hosts.said("interrupted")
    assert "asgd interrupted: stopped by SIGINT" in hosts.said("interrupted")
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)

    process = trains("killed")
    process.kill()
    process.wait()
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)
    began = time.monotonic()

    (hosts.folder / "secret").write_text("another secret..")
    process = hosts.run("refused", **long)
    assert process.wait(60) == 1
    assert "host b (10.98.0.2:14790): " in hosts.said("refused")
    assert "the secrets may differ" in hosts.said("refused")
    assert time.monotonic() - began < 60
    assert not (hosts.folder / "refused").exists()

"""Runs spread over three hosts: network namespaces that an underlay of 1,500 bytes joins."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import yaml

import testbed
from bench.hosts import Hosts
from testbed.execution import write_results
from testbed.nodes import run_names
from tests.end_to_end.conftest import HomeCommands, until, warm_hosts
from tests.end_to_end.warm import WarmCommand
from tests.traffic.isolation import real

pytestmark = [
    pytest.mark.exercises("namespaces"),
    pytest.mark.skipif(os.geteuid() != 0, reason="links between hosts need root"),
]
SPEC = {
    "name": "spread",
    "dataset": "digits",
    "model": "mlp",
    "clock": "virtual",
    "training": {"batch_size": 10, "updates": 24},
    "algorithms": ["asgd", {"name": "adacomp", "ratio": 0.05}],
    "devices": {
        "workers": 6,
        "servers": 2,
        "classes": [
            {"name": "core", "number": 4},
            {"name": "late", "number": 1, "arrives": "300ms"},
            {"name": "mobile", "number": 1, "leaves": "400ms", "returns": "300ms"},
        ],
    },
    "network": {
        "uplink": "20mbit",
        "downlink": "50mbit",
        "clusters": [
            {"name": "campus", "share": "50%", "uplink": "30mbit", "downlink": "60mbit"},
            {"name": "village", "share": "50%", "uplink": "10mbit", "downlink": "20mbit"},
        ],
    },
    "compute": {"mean": "20ms"},
    "evaluation": {"every": 12, "images": 100},
    "faults": [
        {"when": {"probability": 0.05}, "how": "kill", "lasting": "100ms"},
        {
            "who": {"devices": ["worker-2"]},
            "when": {"time": "300ms"},
            "how": "freeze",
            "lasting": "200ms",
        },
        {
            "who": {"devices": ["worker-3"]},
            "when": {"time": "400ms"},
            "how": "stop-network",
            "lasting": "200ms",
        },
        {
            "who": {"devices": ["worker-4"]},
            "when": {"time": "500ms"},
            "how": "partition",
            "lasting": "200ms",
        },
    ],
}


_UPLINK = [("node", "=", "worker-4"), ("direction", "=", "uplink")]


@dataclass
class Spread:
    """Three hosts, on the second and third of which agents wait, and runs on them."""

    hosts: Hosts
    home: HomeCommands

    @property
    def folder(self) -> Path:
        return self.hosts.folder

    def run(self, out: str, **settings: Any) -> WarmCommand:
        """Start a run that is spread over all of them."""
        return self.home.run(out, SPEC | settings)

    def said(self, out: str) -> str:
        return (self.folder / f"{out}.log").read_text()

    def agents_of_runs(self, name: str) -> list[psutil.Process]:
        """Return the agents of runs that a host's agent has started."""
        family = self.hosts.agents[name].children(recursive=True)
        return [one for one in family if _title(one) == run_names.AGENT]

    def left(self) -> list[str]:
        """Return the titles of the processes that the hosts' agents have started, and still run."""
        return [_title(one) for one in self.hosts.left()]


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return "".join(process.cmdline()[:1])
    return ""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spread]:
    with warm_hosts(tmp_path_factory.mktemp("hosts"), "bc") as hosts:
        yield Spread(hosts, HomeCommands(hosts))


@real
@pytest.mark.timeout(300)
def test_faults_on_three_hosts_end_with_the_bits_of_one_and_leave_nothing(hosts: Spread) -> None:
    log = hosts.folder / "doctor.json"
    doctor = hosts.home.start("doctor", "--hosts", "hosts.yaml", "--json", log=log)
    assert doctor.wait(100) == 0, log.read_text()
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
        assert set(summary["faults"]) >= {"kill", "freeze", "stop-network", "partition", "away"}
    manifest = json.loads(next(hosts.folder.glob("spread/*/*/asgd/manifest.json")).read_bytes())
    names = {name: one["names"] for name, one in manifest["hosts"].items()}
    assert names == {"b": ["worker-2..3"], "c": ["worker-4..5"]}
    assert all(one["clock"] and one["clock_at_end"] for one in manifest["hosts"].values())
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)


@real
@pytest.mark.timeout(100)
def test_the_plan_says_the_same_in_words_and_as_json(hosts: Spread) -> None:
    spec = hosts.folder / "planned.yaml"
    spec.write_text(yaml.safe_dump(SPEC))
    plan = ("plan", spec, "--hosts", "hosts.yaml")
    said, log = hosts.folder / "plan.txt", hosts.folder / "plan.json"
    assert hosts.home.start(*plan, log=said).wait(60) == 0, said.read_text()
    assert hosts.home.start(*plan, "--json", log=log).wait(60) == 0, log.read_text()
    found = json.loads(log.read_bytes())[0]["spread"]
    assert [*found["devices"]] == ["b", "c"]
    names = [name for own in (found["here"], *found["devices"].values()) for name in own]
    assert sorted(names) == [f"worker-{number}" for number in range(6)]
    assert found["crossing"] == len(found["devices"]["b"]) + len(found["devices"]["c"]) > 0
    assert f"{found['crossing']} links between hosts, to this host together" in said.read_text()
    assert found["problems"] == []
    short = "carries packets of 1,500 bytes: a full packet of a link that crosses has 1,550"
    assert [short in one for one in found["remarks"]] == [True, True]
    assert said.read_text().count(short) == 2


@real
@pytest.mark.timeout(300)
def test_metrics_of_spread_runs_have_the_workers_and_peers_of_all_hosts(hosts: Spread) -> None:
    kinds = {"asgd": "worker", "all-to-all": "peer"}
    changes = {"algorithms": [*kinds], "devices": {"workers": 6}, "faults": []}
    options = ("--metrics-port", "0", "--metrics-linger", "1min", "--metrics-workers")
    process = hosts.home.run("watched", SPEC | changes, *options)
    until(lambda: "final values" in hosts.said("watched"), "the final values", 200)
    (url,) = {word for word in hosts.said("watched").split() if word.startswith("http://127")}
    page = hosts.folder / "page"
    code = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
    assert hosts.hosts.home.popen(sys.executable, "-c", code, url, log=page).wait(20) == 0
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0, hosts.said("watched")
    values = dict(
        line.rsplit(" ", 1) for line in page.read_text().splitlines() if line and line[0] != "#"
    )
    for algorithm, kind in kinds.items():
        (file,) = hosts.folder.glob(f"watched/*/*/{algorithm}/summary.json")
        own = {name: float(value) for name, value in values.items() if f'"{algorithm}"' in name}
        sent = sum(
            value
            for name, value in own.items()
            if name.startswith("testbed_uplink_transmitted_bytes_total")
        )
        # By the virtual clock no link has a rate: frames are counted before they are cut into packets.
        drained = json.loads(file.read_bytes())["ingress_after_drain"]
        assert drained["message_bytes"] < sent < drained["wire_bytes"]
        used = [name for name in own if name.startswith("testbed_device_cpu_seconds_total")]
        assert all(any(f'"{kind}-{number}"' in name for name in used) for number in range(6))


@real
@pytest.mark.timeout(300)
def test_an_end_of_one_is_the_end_of_all(hosts: Spread) -> None:
    long = {"training": {"batch_size": 10, "updates": 1_000_000}, "algorithms": ["asgd"]}
    # By the virtual clock it keeps every processor busy until it ends.
    paced = long | {
        "clock": "wall",
        "waiting": {"distribution": "constant", "mean": "200ms"},
        "devices": {"workers": 6},
        "faults": [],
    }

    def trains(out: str, content: dict[str, Any]) -> WarmCommand:
        process = hosts.run(out, **content)
        until(lambda: "asgd: training, " in hosts.said(out), "training", 100)
        assert len(hosts.left()) > 4
        return process

    process = trains("agent-killed", long)
    (agent,) = hosts.agents_of_runs("c")
    agent.kill()
    assert process.wait(60) == 1
    assert "asgd failed: host c is lost: its agent died; under the " in hosts.said("agent-killed")
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)

    process = trains("interrupted", paced)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, hosts.said("interrupted")
    assert "asgd interrupted: stopped by SIGINT" in hosts.said("interrupted")
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)
    (directory,) = hosts.folder.glob("interrupted/*/*/asgd")
    resumed = ("resume", directory, "--no-report")
    process = hosts.home.start(*resumed, log=hosts.folder / "resumed.log")
    until(lambda: "asgd: training, " in hosts.said("resumed"), "training", 100)
    assert hosts.left() == []
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, hosts.said("resumed")
    text = "goes on on this host alone: until now it was spread over this host and b, c"
    assert f"asgd: warning: {text}" in hosts.said("resumed")

    process = trains("killed", paced)
    process.kill()
    process.wait()
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)
    began = time.monotonic()

    secret = hosts.folder / "secret"
    theirs = secret.read_text()
    secret.write_text("another secret..")
    process = hosts.run("refused", **long)
    assert process.wait(60) == 1
    secret.write_text(theirs)
    assert "host b (10.98.0.2:14790): " in hosts.said("refused")
    assert "the secrets may differ" in hosts.said("refused")
    assert time.monotonic() - began < 60
    assert not (hosts.folder / "refused").exists()


@real
@pytest.mark.timeout(300)
def test_a_host_that_dies_is_the_death_of_its_devices(hosts: Spread) -> None:
    slow = {"who": {"devices": ["worker-2"]}, "when": {"iteration": 5}, "lasting": "3s"}
    process = hosts.run(
        "outlived",
        clock="wall",
        algorithms=["sync-sgd"],
        devices={"workers": 6},
        training={"batch_size": 10, "updates": 70},
        faults=[slow | {"how": {"kind": "slow", "factor": 50}}],
    )
    until(lambda: "sync-sgd: training, " in hosts.said("outlived"), "training", 100)
    (agent,) = hosts.agents_of_runs("c")
    agent.kill()
    assert process.wait(120) == 0, hosts.said("outlived")
    text = "warning: host c is lost: its agent died; 2 devices died with it"
    assert text in hosts.said("outlived")
    (file,) = hosts.folder.glob("outlived/*/*/*/summary.json")
    summary = json.loads(file.read_bytes())
    assert (summary["updates"], summary["workers_lost"]) == (70, 2)
    assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]
    write_results(file.parents[1])
    (lost, *_) = pq.read_table(file.parent / "traffic/links.parquet", filters=_UPLINK).to_pylist()
    assert (lost["rate"], lost["bytes"]) == (20_000_000, None)
    events = [json.loads(line) for line in file.with_name("events.jsonl").read_text().splitlines()]
    died = [one["device"] for one in events if one["kind"] == "died"]
    assert [one["kind"] for one in events].count("host-lost") == 1
    assert died == ["worker-4", "worker-5"]
    # Each update waits for the worker that is slow, which computes for a second on another host.
    faults = file.with_name("faults.jsonl").read_text().splitlines()
    began, ended = (json.loads(line)["time"] for line in faults)
    rows = pq.read_table(file.with_name("updates.parquet")).to_pydict()
    meanwhile = {
        iteration
        for iteration, time in zip(rows["iteration"], rows["time"], strict=True)
        if began + 1 < time < ended
    }
    assert len(meanwhile) <= 3
    until(lambda: hosts.left() == [], "the ends of the agents' processes", 20)

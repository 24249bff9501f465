"""Programs of users, and background traffic, over three hosts that are network namespaces."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench.hosts import OWN, Hosts
from testbed.nodes import run_names
from tests.end_to_end.conftest import SMALL, HomeCommands, until, warm_hosts
from tests.traffic.isolation import real

pytestmark = [
    pytest.mark.exercises("namespaces"),
    pytest.mark.skipif(os.geteuid() != 0, reason="links between hosts need root"),
]
AVERAGE = """
import os, socket, struct, sys
def read(end):
    data = b""
    while len(data) < 8000:
        data += end.recv(8000 - len(data)) or sys.exit("the other side has ended")
    return struct.unpack("1000d", data)
def send(end, values):
    end.sendall(struct.pack("1000d", *values))
if sys.argv[1] == "server":
    server = socket.create_server(("0.0.0.0", 5000), backlog=5)
    clients = [server.accept()[0] for _ in range(5)]
    for round in range(4):
        values = [sum(one) / 5 for one in zip(*map(read, clients))]
        for client in clients:
            send(client, values)
        print(f"round={round} accuracy={values[0] / 10:.4f}", flush=True)
else:
    end = socket.create_connection(("server", 5000))
    values = [float(os.environ["TESTBED_INDEX"])] * 1000
    for round in range(4):
        send(end, values)
        values = [(own + mean) / 2 for own, mean in zip(values, read(end))]
    print("value", values[-1])
    open("value", "w").write(f"{values[-1]}")
    open(os.environ["HOME"] + "/started", "a").write("once more\\n")
"""
AVERAGING: dict[str, Any] = {
    "name": "averaging",
    "programs": {
        "server": {
            "on": "server",
            "run": "python3 average.py server",
            "ready": {"tcp": 5000},
            "ends": "run",
        },
        "client": {"on": "workers", "run": "python3 average.py client", "after": "server"},
    },
    "measure": {
        "from": "server",
        "pattern": r"round=(?P<round>\d+) accuracy=(?P<accuracy>[0-9.]+)",
    },
    "files": ["average.py"],
    "devices": {"workers": 5},
    "network": {"uplink": "10mbit", "downlink": "50mbit", "probe": False},
    "limits": {"time": "60s"},
}
FLOWS = [
    {"from": "worker-4", "to": "server", "rate": "2mbit"},
    {"from": "worker-4", "to": "worker-2", "rate": "2mbit", "law": "poisson"},
    {"from": "server", "to": "worker-3", "rate": "1mbit"},
]
SLEEPING: dict[str, Any] = {
    "name": "sleeping",
    "programs": {
        "nap": {"on": "workers", "run": "sh -c 'echo begun; sleep 1000'"},
        "job": {"on": "server", "run": "sleep 4", "ends": "run"},
    },
    "devices": {"workers": 5},
    "network": {"uplink": "10mbit", "downlink": "50mbit", "probe": False},
    "limits": {"time": "60s", "stop": "2s"},
    "traffic_between": FLOWS,
    "faults": [
        {"who": {"devices": [device]}, "when": {"time": "1s"}, "how": "kill", "lasting": lasting}
        for device, lasting in (("worker-2", "1s"), ("worker-4", "2500ms"))
    ],
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "average.py").write_text(AVERAGE)
    with warm_hosts(folder, "bc") as hosts:
        yield hosts


@pytest.fixture(scope="module")
def home(hosts: Hosts) -> HomeCommands:
    return HomeCommands(hosts)


def said(hosts: Hosts, out: str) -> str:
    return (hosts.folder / f"{out}.log").read_text()


def directory_of(hosts: Hosts, out: str) -> Path:
    (manifest,) = hosts.folder.glob(f"{out}/*/*/*/manifest.json")
    return manifest.parent


def record(directory: Path) -> dict[str, Any]:
    summary = dict(json.loads((directory / "summary.json").read_bytes()))
    assert summary["ended"] == "completed", summary["reason"]
    assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]
    return summary


def streams(directory: Path) -> dict[tuple[str, str], int]:
    """Return the bytes of the TCP streams of each device, in either direction."""
    rows = pq.read_table(directory / "traffic" / "accounting.parquet").to_pylist()
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["device"], row["direction"]
        found[key] = found.get(key, 0) + row["stream_bytes"]
    return found


def outputs(directory: Path) -> dict[str, list[str]]:
    """Return what programs have said, without its time stamps, and the files that they have written."""
    nodes = directory / "nodes"
    found = {
        str(path.relative_to(nodes)): [one.partition(" ")[2] for one in path.open()]
        for path in sorted(nodes.glob("*/*.log"))
    }
    for path in sorted(nodes.glob("*/home/*")):
        found[str(path.relative_to(nodes))] = [path.read_text()]
    return found


def has_left_nothing(hosts: Hosts, before: set[Path]) -> bool:
    return not hosts.left() and set(Path("/var/tmp").glob("testbed-*")) <= before


@real
def test_programs_on_three_hosts_do_what_they_do_on_one(hosts: Hosts, home: HomeCommands) -> None:
    before = set(Path("/var/tmp").glob("testbed-*"))
    # The run directory is in a folder that the other hosts do not have.
    process = home.run("spread", AVERAGING, "--out", f"{OWN}/spread")
    assert process.wait(60) == 0, said(hosts, "spread")
    alone = ("run", "spread.yaml", "--out", f"{OWN}/alone", "--no-report")
    on_one = home.start(*alone, log=hosts.folder / "alone.log")
    assert on_one.wait(60) == 0, said(hosts, "alone")
    spread, one = (directory_of(hosts, f"{OWN}/{out}") for out in ("spread", "alone"))
    assert record(spread)["programs"] == record(one)["programs"]
    names = json.loads((spread / "manifest.json").read_bytes())["hosts"]
    assert [names[host]["names"] for host in "bc"] == [["worker-1..2"], ["worker-3..4"]]
    assert streams(spread) == streams(one)
    assert outputs(spread) == outputs(one)
    assert outputs(spread)["worker-4/client.log"] == ["value 2.125\n"]
    accuracy = [
        [row.split(",")[3:4] for row in (path / "curve.csv").read_text().splitlines()]
        for path in (spread, one)
    ]
    assert accuracy[0] == accuracy[1] and len(accuracy[0]) == 5

    lacking = hosts.folder / OWN / "lacking"
    lacking.mkdir()
    process = home.run("refused", AVERAGING | {"reads": [str(lacking)]})
    assert process.wait(30) == 1
    text = f"host b (10.98.0.2:14790) has no {lacking}, which the programs there need (reads): it "
    assert text in said(hosts, "refused")
    assert not (hosts.folder / "refused").exists()
    until(lambda: has_left_nothing(hosts, before), "the removal of what the agents made", 20)


@real
def test_faults_and_the_death_of_a_host_end_its_programs_only(
    hosts: Hosts, home: HomeCommands
) -> None:
    before = set(Path("/var/tmp").glob("testbed-*"))
    process = home.run("outlived", SLEEPING)
    until(lambda: "sleeping: running" in said(hosts, "outlived"), "the programs", 60)
    log = directory_of(hosts, "outlived") / "nodes" / "worker-2" / "nap.log"
    until(lambda: log.exists() and log.read_text().count("begun") == 2, "its second start", 20)
    family = hosts.agents["c"].children(recursive=True)
    (agent,) = (one for one in family if one.cmdline()[:1] == [run_names.AGENT])
    agent.kill()
    assert process.wait(60) == 0, said(hosts, "outlived")
    text = "warning: host c is lost: its agent died; 2 devices died with it"
    assert text in said(hosts, "outlived")
    summary = record(directory_of(hosts, "outlived"))
    # Unless this machine is slow worker-4 is due to come back when its host is lost already.
    assert summary["workers_lost"] in {1, 2}
    into_server, to_here, into_lost = summary["background"]
    # What a lost host has counted is not known, and what came from it has come.
    assert (into_server["sent_bytes"], into_lost["received_bytes"]) == (None, None)
    assert min(into_server["received_bytes"], to_here["received_bytes"]) > 150_000
    until(lambda: has_left_nothing(hosts, before), "the removal of what the agents made", 20)

    process = home.run("interrupted", SLEEPING)
    until(lambda: "sleeping: running" in said(hosts, "interrupted"), "the programs", 60)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130, said(hosts, "interrupted")
    until(lambda: has_left_nothing(hosts, before), "the removal of what the agents made", 20)


@real
def test_background_traffic_between_hosts_is_apart_from_what_is_trained(
    hosts: Hosts, home: HomeCommands
) -> None:
    content = SMALL | {
        "algorithms": ["sync-sgd"],
        "training": {"updates": 15},
        "network": {"uplink": "20mbit", "downlink": "20mbit", "probe": False},
        "traffic_between": FLOWS,
    }
    process = home.run("trained", content)
    assert process.wait(60) == 0, said(hosts, "trained")
    directory = directory_of(hosts, "trained")
    summary = record(directory)
    for flow in summary["background"]:
        assert 0 < flow["received_bytes"] == flow["sent_bytes"]
    into = summary["background"][0]["received_bytes"]
    assert into == pytest.approx(250_000 * summary["training_seconds"], rel=0.2)
    ledgers = json.loads((directory / "traffic" / "ledgers.json").read_bytes())
    assert ledgers["background"] == {"worker-4": into}
    assert ledgers["counter"]["bytes"] == summary["ingress_after_drain"]["wire_bytes"] + into

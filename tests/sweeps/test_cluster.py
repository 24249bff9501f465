"""A sweep on a real Ray cluster: three nodes, each in namespaces of its own, one killed in the middle.

The two nodes beside the driver's see neither the testbed's code nor the data: both have to travel.
"""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

import traffic
from testbed.errors import HostError
from testbed.ray_cluster.directory_transfer import with_paths
from tests.end_to_end.conftest import REPOSITORY, CommandLine, until

SWEEP = """
name: small
dataset: {dataset}
model: mlp
engine: simulation
training: {{updates: 400}}
algorithms: [{{name: adacomp, ratio: 0.01}}]
devices: {{workers: 5}}
waiting: {{distribution: constant, mean: 10ms}}
evaluation: {{every: 200}}
sweep: {{seed: [1, 2, 3, 4, 5, 6, 7, 8]}}
"""
# A test does not wait for a node that is silent as long as a real network may make it be.
QUICK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}
HOSTS = 3


def write_dataset(folder: Path) -> None:
    """Write a dataset of MNIST's form: a bright line, whose place is the label."""
    folder.mkdir()
    random = np.random.default_rng(1)
    for name, count in (("train", 300), ("t10k", 100)):
        labels = random.integers(10, size=count).astype(np.uint8)
        images = random.integers(100, size=(count, 28, 28)).astype(np.uint8)
        images[np.arange(count), 2 * labels + 4] = 255
        head = struct.pack(">IIII", 0x803, count, 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        head = struct.pack(">II", 0x801, count)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


class Node:
    """A Ray node in network, mount and process namespaces of its own; it dies as a whole."""

    def __init__(
        self, number: int, core: int, hidden: list[Path], settings: dict[str, str]
    ) -> None:
        self.address = f"10.99.0.{number}"
        shared = f"--node-ip-address={self.address} --num-cpus=1 --disable-usage-stats --block"
        role = (
            "--head --port=6379 --include-dashboard=false"
            if number == 1
            else "--address=10.99.0.1:6379"
        )
        hide = [f"mount -t tmpfs none {path}" for path in (*hidden, "/tmp/ray")]
        script = " && ".join(["read go", *hide, f"exec {sys.executable} -m ray.scripts.scripts"])
        Path("/tmp/ray").mkdir(exist_ok=True)
        unshare = "unshare --net --mount --pid --fork --kill-child --mount-proc sh -c"
        self.process = psutil.Popen(
            [*unshare.split(), f"{script} start {role} {shared}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | settings | {"TMPDIR": "/tmp/ray"},
        )
        self.first = until(self.process.children, "a process in the namespaces")[0].pid
        for command in (
            f"ip link add node{number} type veth peer name eth0 netns {self.first}",
            f"ip link set node{number} master bridge up",
        ):
            inside(core, *command.split())
        for command in (
            f"ip address add {self.address}/24 dev eth0",
            "ip link set eth0 up",
            "ip link set lo up",
        ):
            inside(self.first, *command.split())

    def start(self) -> None:
        """Start Ray."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.close()

    def works(self) -> bool:
        """Return True if a run of the sweep is going on in it."""
        return any("run_there" in " ".join(one.cmdline()) for one in self.processes())

    def processes(self) -> list[psutil.Process]:
        return self.process.children(recursive=True)

    def kill(self) -> None:
        """End all processes of the node at once, as if its power had gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGKILL)
        self.process.wait(20)


def inside(process: int, *command: str) -> None:
    subprocess.run(["nsenter", f"--net=/proc/{process}/ns/net", *command], check=True)


@contextlib.contextmanager
def cluster(data: Path, settings: dict[str, str]) -> Iterator[list[Node]]:
    """Yield the nodes of a cluster, of which only the first sees the testbed's code and the data.

    Args:
        settings: the environment of Ray's daemons.
    """
    core = psutil.Popen(["unshare", "--net", "sleep", "infinity"])
    made: list[Node] = []
    try:
        until(lambda: Path(f"/proc/{core.pid}/comm").read_text() == "sleep\n", "the core")
        inside(core.pid, *["ip", "link", "add", "bridge", "type", "bridge"])
        inside(core.pid, *["ip", "link", "set", "bridge", "up"])
        assert traffic.__file__ is not None
        code = [REPOSITORY / "testbed", Path(traffic.__file__).parent]
        for number in range(1, HOSTS + 1):
            made.append(Node(number, core.pid, [] if number == 1 else [*code, data], settings))
        made[0].start()
        until(lambda: any("gcs_server" in p.name() for p in made[0].processes()), "the head", 120)
        for node in made[1:]:
            node.start()
        for node in made:
            until(lambda of=node: any("raylet" in p.name() for p in of.processes()), "a node", 120)  # type: ignore[misc]
        yield made
    finally:
        for node in made:
            if node.process.is_running():
                node.kill()
        core.kill()
        core.wait()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    with cluster(tmp_path / "data", QUICK) as made:
        yield made


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.timeout(240)
def test_a_node_dies_and_no_run_is_lost(
    request: pytest.FixtureRequest, command: CommandLine, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
    write_dataset(tmp_path / "data")
    file = tmp_path / "small.yaml"
    file.write_text(SWEEP.format(dataset=tmp_path / "data"), encoding="utf-8")
    nodes: list[Node] = request.getfixturevalue("nodes")
    namespaces = ["nsenter", f"--target={nodes[0].first}", "--net", "--mount", "--pid"]
    options = ["--ray", "auto", "--json", "--no-figures", "--out", str(tmp_path / "far")]
    output, errors = tmp_path / "output", tmp_path / "errors"
    with output.open("wb") as out, errors.open("wb") as err:
        sweep = psutil.Popen(
            [*namespaces, sys.executable, "-m", "testbed", "sweep", str(file), *options],
            stdout=out,
            stderr=err,
            cwd=tmp_path,
        )

    def home() -> dict[Path, int]:
        found = (tmp_path / "far").glob("small/sweep/*/manifest.json")
        return {path: path.stat().st_mtime_ns for path in found}

    until(lambda: home() and nodes[2].works(), "a run that has come home, and one on the node", 90)
    nodes[2].kill()
    before = home()
    assert len(before) < 8
    assert sweep.wait(120) == 0, errors.read_text()
    told = json.loads(output.read_text())
    assert (told["runs"], told["complete"], told["failed"]) == (8, 8, {})
    assert before.items() <= home().items()
    said = errors.read_text()
    assert "3 nodes with 3 processors" in said
    assert "has the same parameters as on this host" in said
    # The same sweep on this host alone ends with the same parameters, and the same specs.
    options = ["--no-figures", "--set", "sweep.seed=[1, 8]", "--out", str(tmp_path / "near")]
    local = command.start("sweep", file, *options)
    assert local.wait(120) == 0, local.said
    theirs = pq.read_table(tmp_path / "far" / "small" / "sweep" / "results.parquet").to_pylist()
    ours = pq.read_table(tmp_path / "near" / "small" / "sweep" / "results.parquet").to_pylist()
    for one, other in zip([theirs[0], theirs[-1]], ours, strict=True):
        assert one["parameters_sha256"] == other["parameters_sha256"]
        assert one["run"].rpartition("/")[2] == other["run"].rpartition("/")[2]
    (first,) = (tmp_path / "far").glob("small/sweep/*seed-1.*/spec.yaml")
    (same,) = (tmp_path / "near").glob("small/sweep/*seed-1.*/spec.yaml")
    assert first.read_text() == same.read_text()


def test_without_ray_or_without_a_cluster_it_says_what_to_do(
    file: Path, command: CommandLine
) -> None:
    started = command.start("sweep", file, "--ray", "127.0.0.1:1")
    emulated = command.start("sweep", file, "--ray", "auto", "--set", "engine=emulation")
    assert started.wait(60) == HostError.exit_status
    assert "Ray" in started.said
    assert len(started.said.splitlines()) == 1, started.said
    assert emulated.wait(60) == 2
    assert "a Ray cluster carries out simulations only" in emulated.said


def test_paths_of_a_spec_are_those_of_a_node() -> None:
    text = "dataset: {name: /a/data}\nplugins: [{file: b.py, content: 'x = \"/a/data\"'}]\n"
    assert with_paths(text, {}) == text
    there = with_paths(text, {"/a/data": "/tmp/1/data"})
    assert there.startswith("dataset:\n  name: /tmp/1/data\n")
    assert 'x = "/a/data"' in there

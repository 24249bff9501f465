"""A sweep on a real Ray cluster: three nodes, each in namespaces of its own, one killed in the middle.

The two nodes beside the driver's see neither the testbed's code nor the data: both have to travel.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench.hosts import TESTBED
from bench.ray_nodes import RayNode, ray_cluster
from testbed.errors import HostError
from testbed.ray_cluster.directory_transfer import with_paths
from tests.end_to_end.conftest import CommandLine, until

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


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RayNode]]:
    with ray_cluster(tmp_path, [tmp_path / "data"], QUICK) as made:
        yield [*made.nodes.values()]


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
    nodes: list[RayNode] = request.getfixturevalue("nodes")
    options = ["--ray", "auto", "--json", "--no-figures", "--out", str(tmp_path / "far")]
    output, errors = tmp_path / "output", tmp_path / "errors"
    apart = ["sh", "-c", f'exec "$@" > {output}', "sh"]
    sweep = nodes[0].popen(*apart, *TESTBED, "sweep", str(file), *options, log=errors)

    def works(node: RayNode) -> bool:
        return any("run_there" in line for line in node.commands().values())

    def home() -> dict[Path, int]:
        found = (tmp_path / "far").glob("small/sweep/*/manifest.json")
        return {path: path.stat().st_mtime_ns for path in found}

    until(lambda: home() and works(nodes[2]), "a run that has come home, and one on the node", 90)
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

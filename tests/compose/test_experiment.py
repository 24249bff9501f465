"""``compose/experiment.yml``: its settings, and real training with locally built images."""

import csv
import io
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import uuid
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml
from docker.models.containers import Container

from testbed.containers.image import default_image

FILE = Path(__file__).parents[2] / "compose" / "experiment.yml"
ROLES = ("server", "shard", "evaluator", "worker")
SPEC = """\
name: small
dataset: digits
model: mlp
training: {updates: 60}
algorithms: [asgd]
devices: {workers: 3, servers: %d}
evaluation: {every: 20}
"""


def _command() -> list[str]:
    """Return the command of Debian's docker-compose, or of the engine's own plugin."""
    if found := shutil.which("docker-compose"):
        return [found]
    plugin = ["docker", "compose"]
    if (
        shutil.which("docker")
        and not subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode
    ):
        return plugin
    pytest.skip("neither docker-compose nor docker compose is installed")


class Compose:
    """Compose with the repository's file, under its own project name."""

    def __init__(self) -> None:
        self.project = f"testbed-test-{uuid.uuid4().hex[:8]}"
        self._command = _command()
        self.environment = {k: v for k, v in os.environ.items() if k not in ("IMAGE", "EXPERIMENT")}
        self.environment["TESTBED_SECRET"] = secrets.token_hex(32)

    def do(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, "-p", self.project, "-f", str(FILE), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


@pytest.fixture
def compose() -> Compose:
    return Compose()


@pytest.fixture
def resolved(compose: Compose) -> dict[str, Any]:
    """The file as compose resolves it."""
    result = compose.do("config")
    assert result.returncode == 0, result.stderr
    content: dict[str, Any] = yaml.safe_load(result.stdout)
    return content


def test_services_run_this_version_with_the_least_privileges(resolved: dict[str, Any]) -> None:
    assert set(resolved["services"]) == set(ROLES)
    for role, service in resolved["services"].items():
        assert service["image"] == default_image()
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert "ports" not in service
        assert "privileged" not in service
        assert service["mem_limit"]
        assert float(service["cpus"]) > 0
        assert service["healthcheck"]["test"] == ["CMD", "test", "-e", "/tmp/ready"], role
    (network,) = resolved["networks"].values()
    assert (network["driver"], network["internal"]) == ("bridge", True)


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_secret_compose_refuses_and_names_the_remedy(
    compose: Compose, value: str | None
) -> None:
    del compose.environment["TESTBED_SECRET"]
    if value is not None:
        compose.environment["TESTBED_SECRET"] = value
    result = compose.do("config")
    assert result.returncode != 0
    assert "compose/README.md has the command that makes one" in result.stderr
    readme = (FILE.parent / "README.md").read_text()
    assert "\nexport TESTBED_SECRET=$(openssl rand -hex 32)\n" in readme


@pytest.mark.exercises("compose")
@pytest.mark.parametrize("servers", [1, 3])
def test_the_experiment_trains_and_leaves_nothing(
    compose: Compose,
    docker_client: docker.DockerClient,
    testbed_image: str,
    tmp_path: Path,
    servers: int,
) -> None:
    (tmp_path / "small.yaml").write_text(SPEC % servers)
    for path in (tmp_path, tmp_path / "small.yaml"):
        path.chmod(0o755)  # the image's user must be able to read it
    compose.environment |= {
        "IMAGE": testbed_image,
        "EXPERIMENTS": str(tmp_path),
        "EXPERIMENT": "small.yaml",
    }
    try:
        shards = servers - 1
        scales = ["--scale=worker=3", *([f"--scale=shard={shards}"] if shards else [])]
        result = compose.do(
            "up", *scales, "--abort-on-container-exit", "--exit-code-from", "server"
        )
        assert result.returncode == 0, result.stdout + result.stderr
        containers = _of(docker_client, compose.project)
        others = ["server"] + ["shard"] * shards + ["worker"] * 3
        assert sorted(containers) == ["evaluator", *others]
        server = _server(docker_client, compose.project)
        said = server.logs().decode().splitlines()
        assert "worker greeted: 3 of 3" in said
        accuracies = [line for line in said if line.startswith("update ") and "accuracy" in line]
        assert [line.partition(":")[0] for line in accuracies] == [
            f"update {i} of 60" for i in (0, 20, 40, 60)
        ]
        summary, curve = _results(server)
        assert (
            len(_left(docker_client, compose.project)) == 5 + shards + 2
        )  # a network and a volume
    finally:
        down = compose.do("down", "--volumes", "--timeout", "5")
    assert down.returncode == 0, down.stderr
    assert not _left(docker_client, compose.project)
    assert (summary["ended"], summary["updates"], summary["workers_lost"]) == ("completed", 60, 0)
    assert [int(row["iteration"]) for row in curve] == [0, 20, 40, 60]
    assert int(curve[-1]["payload_bytes"]) == 60 * 4 * 109_386
    assert len(summary.get("servers", {})) == (servers if shards else 0)
    assert float(curve[-1]["accuracy"]) > 20  # guessing among ten classes gives 10
    assert any(summary["parameters_sha256"] in line for line in said)


def _left(client: docker.DockerClient, project: str) -> set[str | None]:
    """Return the names of the project's containers, networks and volumes in the engine."""
    found = {c.name for c in client.containers.list(all=True, ignore_removed=True)}
    found |= {n.name for n in client.networks.list()} | {v.name for v in client.volumes.list()}
    return {name for name in found if name is not None and name.startswith(project)}


def _of(client: docker.DockerClient, project: str) -> list[str]:
    label = f"com.docker.compose.project={project}"
    found = client.containers.list(all=True, filters={"label": label})
    return [container.labels["com.docker.compose.service"] for container in found]


def _server(client: docker.DockerClient, project: str) -> Container:
    labels = [f"com.docker.compose.project={project}", "com.docker.compose.service=server"]
    (server,) = client.containers.list(all=True, filters={"label": labels})
    return server


def _results(server: Container) -> tuple[dict[str, Any], list[dict[str, str]]]:
    chunks, _ = server.get_archive("/results")
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        files = {Path(entry.name).name: archive.extractfile(entry) for entry in archive}
        contents = {name: file.read().decode() for name, file in files.items() if file}
    summary: dict[str, Any] = json.loads(contents["summary.json"])
    return summary, list(csv.DictReader(io.StringIO(contents["curve.csv"])))

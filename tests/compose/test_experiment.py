"""``compose/experiment.yml``: its settings, and a real run over containers that are hosts."""

import json
import os
import secrets
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from testbed.containers.image import default_image
from testbed.network.underlay import AGENT_PORT
from testbed.orchestrator.hosts.hosts_file import HostsFile

FILE = Path(__file__).parents[2] / "compose" / "experiment.yml"
HOSTS = FILE.with_name("hosts.yaml")
SPEC = """\
name: small
dataset: digits
model: mlp
training: {updates: 60}
algorithms: [asgd]
network: {uplink: 20mbit, downlink: 50mbit}
devices: {workers: 3, servers: 2}
faults: [{who: {devices: [worker-1]}, when: {iteration: 20}, how: kill}]
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
        self.environment = {k: v for k, v in os.environ.items() if k not in ("IMAGE", "RUNS")}
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
    services = resolved["services"]
    for service in services.values():
        assert service["image"] == default_image()
        assert service["cap_drop"] == ["ALL"]
        assert service["cap_add"] == ["DAC_OVERRIDE", "NET_ADMIN", "NET_RAW", "SYS_ADMIN"]
        assert service["security_opt"] == ["no-new-privileges:true", "apparmor:unconfined"]
        assert service["read_only"] is True
        assert "ports" not in service
        assert "privileged" not in service
        assert service["mem_limit"]
    (network,) = resolved["networks"].values()
    assert network["internal"] is True


def test_the_file_of_hosts_has_the_addresses_of_the_containers(resolved: dict[str, Any]) -> None:
    file, services = HostsFile.load(HOSTS), resolved["services"]
    agents = {one.name: one.address for one in file.others}
    own = {name: one["networks"]["underlay"]["ipv4_address"] for name, one in services.items()}
    assert own == {"run": file.underlay, **agents}
    for name, address in agents.items():
        command = services[name]["command"]
        words = command.split() if isinstance(command, str) else command
        assert words == ["testbed", "agent", "--listen", address]
        assert f":{AGENT_PORT:04X} .* 0A " in services[name]["healthcheck"]["test"]


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_secret_compose_refuses_and_names_the_remedy(
    compose: Compose, value: str | None
) -> None:
    del compose.environment["TESTBED_SECRET"]
    if value is not None:
        compose.environment["TESTBED_SECRET"] = value
    result = compose.do("config")
    assert result.returncode != 0
    assert "docs/hosts.md has the command that makes one" in result.stderr
    page = (FILE.parents[1] / "docs" / "hosts.md").read_text()
    assert "\nexport TESTBED_SECRET=$(openssl rand -hex 32)\n" in page


@pytest.mark.exercises("compose")
def test_the_experiment_runs_over_the_containers_and_leaves_nothing(
    compose: Compose, docker_client: docker.DockerClient, testbed_image: str, tmp_path: Path
) -> None:
    (tmp_path / "small.yaml").write_text(SPEC)
    compose.environment |= {
        "IMAGE": testbed_image,
        "EXPERIMENTS": str(tmp_path),
        "EXPERIMENT": "small.yaml",
        "RUNS": str(tmp_path / "runs"),
    }
    try:
        result = compose.do("up", "--exit-code-from", "run")
        assert result.returncode == 0, result.stdout + result.stderr
        assert len(_left(docker_client, compose.project)) == 3 + 1  # a network
    finally:
        down = compose.do("down", "--timeout", "5")
    assert down.returncode == 0, down.stderr
    assert not _left(docker_client, compose.project)
    (run,) = (tmp_path / "runs" / "small").glob("*/asgd")
    summary = json.loads((run / "summary.json").read_bytes())
    assert (summary["ended"], summary["updates"]) == ("completed", 60)
    assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]
    assert len(summary["servers"]) == 2
    assert summary["best_accuracy"] > 20  # guessing among ten classes gives 10
    manifest = json.loads((run / "manifest.json").read_bytes())
    names = {name: one["names"] for name, one in manifest["hosts"].items()}
    assert names == {"b": ["worker-1"], "c": ["worker-2"]}


def _left(client: docker.DockerClient, project: str) -> set[str | None]:
    """Return the names of the project's containers, networks and volumes in the engine."""
    found = {c.name for c in client.containers.list(all=True, ignore_removed=True)}
    found |= {n.name for n in client.networks.list()} | {v.name for v in client.volumes.list()}
    return {name for name in found if name is not None and name.startswith(project)}

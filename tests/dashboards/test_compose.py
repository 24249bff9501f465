"""``compose/observability.yml``: valid, on loopback only, no log-in, and its mounts exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.page import GRAFANA
from tests.dashboards.grafana import REPOSITORY
from tests.dashboards.server import CONFIGURATION

FILE = REPOSITORY / "compose" / "observability.yml"
PROVISIONING = REPOSITORY / "compose" / "grafana"


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
    return found


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Return the repository's folders that a service mounts, by their path in the container."""
    found = {}
    for mount in service["volumes"]:
        source, target, *mode = mount.split(":")
        if source.startswith("."):
            assert mode == ["ro"], mount
            found[target] = (FILE.parent / source).resolve()
    return found


@pytest.mark.skipif(
    shutil.which("docker-compose") is None, reason="docker-compose (Debian) is not installed"
)
def test_compose_accepts_the_file() -> None:
    done = subprocess.run(
        ["docker-compose", "-f", str(FILE), "config"],
        env={
            "PATH": "/usr/bin:/bin",
            "TESTBED_GRAFANA_PORT": "3999",
            "TESTBED_PROMETHEUS_PORT": "9999",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    grafana, prometheus = yaml.safe_load(done.stdout)["services"].values()
    assert grafana["environment"]["GF_SERVER_HTTP_PORT"] == "3999"
    assert grafana["environment"]["TESTBED_PROMETHEUS_PORT"] == "9999"
    assert "--web.listen-address=127.0.0.1:9999" in prometheus["command"]
    assert prometheus["healthcheck"]["test"][-1] == "--url=http://127.0.0.1:9999"


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_a_service_is_pinned_healthy_and_without_privileges(name: str) -> None:
    service = services()[name]
    assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", service["image"])
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["network_mode"] == "host"
    assert "ports" not in service
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    for source in mounts(service).values():
        assert source.is_dir(), source


def test_the_services_listen_on_loopback_only() -> None:
    everything = services()
    arguments = dict(one.split("=", 1) for one in everything["prometheus"]["command"])
    assert arguments["--web.listen-address"].startswith("127.0.0.1:")
    assert everything["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


def test_nobody_logs_in_and_there_is_no_password() -> None:
    settings = services()["grafana"]["environment"]
    assert settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert settings["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert settings["GF_AUTH_BASIC_ENABLED"] == "false"
    assert settings["GF_AUTH_ANONYMOUS_ENABLED"] == "true"
    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert not any("PASSWORD" in name for name in settings)


def test_prometheus_finds_its_configuration() -> None:
    service = services()["prometheus"]
    [(target, source)] = mounts(service).items()
    assert source == CONFIGURATION
    assert f"--config.file={target}/prometheus.yml" in service["command"]
    named = yaml.safe_load((source / "prometheus.yml").read_text())["rule_files"]
    assert all((source / name).is_file() for name in named)


def test_grafana_finds_its_data_source_and_its_dashboards() -> None:
    service = services()["grafana"]
    there = mounts(service)
    for kind in ("datasources", "dashboards"):
        assert there[f"/etc/grafana/provisioning/{kind}"] == PROVISIONING / kind
    [provider] = yaml.safe_load((PROVISIONING / "dashboards" / "testbed.yml").read_text())[
        "providers"
    ]
    folder = there[provider["options"]["path"]]
    assert {path.name for path in folder.glob("*.json")} >= {"ingress.json", "compare.json"}
    home = Path(service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert json.loads((there[str(home.parent)] / home.name).read_text())["uid"] == "testbed-ingress"


def test_the_data_source_is_the_prometheus_of_the_same_file() -> None:
    text = (PROVISIONING / "datasources" / "prometheus.yml").read_text()
    [source] = yaml.safe_load(text)["datasources"]
    assert source["type"] == "prometheus"
    assert source["isDefault"] is True
    assert source["url"] == "http://127.0.0.1:$TESTBED_PROMETHEUS_PORT"
    assert "TESTBED_PROMETHEUS_PORT" in services()["grafana"]["environment"]
    scraped = yaml.safe_load((CONFIGURATION / "prometheus.yml").read_text())["global"]
    assert source["jsonData"]["timeInterval"] == scraped["scrape_interval"]


def test_the_panels_are_written_for_the_release_that_shows_them() -> None:
    assert services()["grafana"]["image"] == f"grafana/grafana:{GRAFANA}"

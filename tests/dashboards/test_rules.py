"""The scrape configuration, recording rules and alerts, checked by Prometheus's own tool."""

import re
import shutil
import subprocess

import pytest
import yaml

from testbed.cli.metrics import DEFAULT_PORT
from tests.dashboards.grafana import REPOSITORY, queries
from tests.dashboards.server import CONFIGURATION

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed"
)


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules(kind: str) -> dict[str, str]:
    """Return the expression of every rule of a kind (``record`` or ``alert``), by its name."""
    return {
        rule[kind]: rule["expr"]
        for path in ("recording.yml", "alerts.yml")
        for group in yaml.safe_load((CONFIGURATION / path).read_text())["groups"]
        for rule in group["rules"]
        if kind in rule
    }


def test_the_configuration_is_valid() -> None:
    said = promtool("check", "config", "--lint=all", str(CONFIGURATION / "prometheus.yml"))
    assert "2 rule files found" in said


def test_the_ports_that_documents_name_are_scraped() -> None:
    configuration = yaml.safe_load((CONFIGURATION / "prometheus.yml").read_text())
    [job] = configuration["scrape_configs"]
    [targets] = [one["targets"] for one in job["static_configs"]]
    assert f"127.0.0.1:{DEFAULT_PORT}" in targets
    compose = REPOSITORY / "compose" / "observability.yml"
    for path in (compose, REPOSITORY / "Makefile", REPOSITORY / "dashboards" / "README.md"):
        for port in re.findall(r"--metrics-port (\d+)", path.read_text()):
            assert f"127.0.0.1:{port}" in targets, path


def test_the_rules_are_valid() -> None:
    said = promtool(
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        *(str(CONFIGURATION / name) for name in ("recording.yml", "alerts.yml")),
    )
    assert said.count("SUCCESS") == 2


def test_the_rules_do_what_their_tests_say() -> None:
    files = sorted(str(path) for path in (CONFIGURATION / "tests").glob("*.test.yml"))
    assert len(files) == 2
    assert promtool("test", "rules", *files).count("SUCCESS") == 2


def test_every_rule_has_a_test() -> None:
    tested = "".join(path.read_text() for path in (CONFIGURATION / "tests").glob("*.test.yml"))
    for name in (*rules("record"), *rules("alert")):
        assert name in tested, name


def test_every_recorded_series_that_a_query_names_has_a_rule() -> None:
    asked = " ".join([*(query.expression for query in queries()), *rules("alert").values()])
    names = set(re.findall(r"testbed:\w+:\w+", asked))
    assert len(names) >= 6
    assert names <= set(rules("record"))

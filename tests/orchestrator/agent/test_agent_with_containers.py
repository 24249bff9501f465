"""The agent with containers of a real engine as nodes; the roles are sample_roles.py, forked."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.messages.agent_reports import ProcessExited
from testbed.messages.requests import FreezeDevice, KillDevice, LimitProcessors
from tests.containers.private_engine import TINY, PrivateEngine, private_engine
from tests.orchestrator.agent.test_agent import (
    Harness,
    test_a_node_knows_the_others_by_name_and_nobody_else,
    test_bytes_are_counted_at_mtu_1500_without_the_observers,
    test_frozen_stands_still_and_killed_is_reported,
)
from tests.orchestrator.agent.test_probing import (
    test_a_link_that_is_built_otherwise_than_planned_is_seen,
    test_the_probe_is_in_no_count,
)

__all__ = [
    "test_a_link_that_is_built_otherwise_than_planned_is_seen",
    "test_a_node_knows_the_others_by_name_and_nobody_else",
    "test_bytes_are_counted_at_mtu_1500_without_the_observers",
    "test_frozen_stands_still_and_killed_is_reported",
    "test_the_probe_is_in_no_count",
]
pytestmark = [pytest.mark.real, pytest.mark.exercises("Docker, roles forked")]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    with private_engine(tmp_path_factory.mktemp("engine")) as one:
        yield one


@pytest.fixture
def agent(
    tmp_path: Path, engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Harness]:
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    harness = Harness(tmp_path / "log", {}, {"runtime": "docker", "launch": "fork", "image": TINY})
    yield harness
    harness.close()
    assert engine.containers() == []


def test_a_node_sees_only_its_container(agent: Harness) -> None:
    agent.network("server", "evaluator", "worker-0")
    agent.start("worker-0", what="describe")
    seen = agent.until(agent.report, lambda m: "pid" in m.fields)
    # The container's first process only waits; the role is another process in its namespaces.
    assert seen["pid"] > 1
    assert seen["processes"] == [1, seen["pid"]]
    assert seen["host"] == "worker-0"
    assert seen["interfaces"] == ["eth0", "lo"]
    assert seen["open"] <= 5


def test_the_engine_pauses_and_a_killed_role_leaves_its_container(
    agent: Harness, engine: PrivateEngine
) -> None:
    agent.network("server", "evaluator")
    (server,) = (
        one
        for one in engine.client.containers.list()
        if one.attrs["Config"]["Hostname"] == "server"
    )
    for _ in range(2):
        agent.start("server", what="tick")
        agent.until(agent.report, lambda m: m.fields["tick"] == 3)
        agent.ask(FreezeDevice("server"))
        agent.counter()
        server.reload()
        assert server.status == "paused"
        agent.ask(KillDevice("server"))
        assert agent.event(ProcessExited) == ProcessExited("server", -signal.SIGKILL)
        server.reload()
        assert server.status == "running"


def test_a_limit_of_processors_is_set_and_removed(agent: Harness) -> None:
    agent.network("server", "evaluator")
    agent.start("server", what="spin")

    agent.until(agent.report, lambda m: m.fields["used"] > 0.1)
    agent.ask(LimitProcessors("server", cpus=0.02))
    agent.counter()
    # The first report may cover time before the limit.
    used = [agent.until(agent.report, lambda m: "used" in m.fields)["used"] for _ in range(4)]
    assert max(used[1:]) < 0.08
    agent.ask(LimitProcessors("server", cpus=None))
    agent.until(agent.report, lambda m: m.fields["used"] > 0.1)

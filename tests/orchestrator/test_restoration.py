"""Checkpoints, and the way back to one."""

from pathlib import Path

import pytest

from testbed.messages.reports import CheckpointBegun, ServerRestored, Suspected
from testbed.messages.requests import ReadIngress, ReadProcessors
from tests.orchestrator.handlers import Orchestrator


@pytest.fixture
def orchestrator(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "run")


def test_a_server_under_the_wall_clock_goes_back_to_its_checkpoint(
    orchestrator: Orchestrator,
) -> None:
    orchestrator.train(1)
    orchestrator.reports.handle(CheckpointBegun(1, orchestrator.began + 1))
    assert orchestrator.requests == [ReadProcessors(), ReadIngress()]
    orchestrator.train(3)
    orchestrator.evaluate(2)
    orchestrator.reports.handle(Suspected(0, 30.0, 40.0, 3))
    orchestrator.reports.handle(ServerRestored(1, [0, 1, 2]))
    assert orchestrator.records.outcome.updates == 1
    assert orchestrator.evaluations.ingress.due == 0
    assert "back from the checkpoint of update 1; 3 later updates are lost" in (
        orchestrator.logged()
    )
    assert orchestrator.evaluations.ingress.each[0].forgotten["payload_bytes"] == 300

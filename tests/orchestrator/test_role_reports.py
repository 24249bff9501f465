"""The orchestrator's handling of each report of a role."""

import hashlib
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from testbed.messages.reports import FinalParameters, RoleReport, ServerFinished, ServerListening
from testbed.messages.requests import StartRole
from tests.orchestrator.handlers import Orchestrator


@pytest.fixture
def orchestrator(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "run")


def test_every_kind_of_report_has_a_handler(orchestrator: Orchestrator) -> None:
    assert orchestrator.reports._handlers.keys() == set(get_args(RoleReport))


def test_the_other_devices_start_once_when_the_server_listens(orchestrator: Orchestrator) -> None:
    orchestrator.reports.handle(ServerListening())
    started = [one.device for one in orchestrator.requests if isinstance(one, StartRole)]
    assert started == ["evaluator", "worker-0", "worker-1", "worker-2"]
    orchestrator.reports.handle(ServerListening())  # a server that replaces a killed one
    assert len(orchestrator.requests) == 4


def test_the_final_parameters_arrive_in_parts(orchestrator: Orchestrator) -> None:
    vector = np.arange(4, dtype=np.float32)
    raw = vector.tobytes()
    orchestrator.reports.handle(FinalParameters(0, raw[:7]))
    orchestrator.reports.handle(FinalParameters(7, raw[7:]))
    orchestrator.reports.handle(ServerFinished(4, 300, 400, {}))
    assert orchestrator.records.finished
    assert orchestrator.records.outcome.parameters_sha256 == hashlib.sha256(raw).hexdigest()
    assert orchestrator.evaluations.ingress.each[0].total == {
        "payload_bytes": 300,
        "message_bytes": 400,
    }

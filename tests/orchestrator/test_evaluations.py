"""Evaluations: when one is written, when one is left out, and when to warn that many wait."""

from pathlib import Path

import pytest

from testbed.messages.agent_reports import IngressRead
from testbed.messages.reports import EvaluationLeftOut, VersionEvaluated
from testbed.messages.requests import ReadIngress, ReadProcessors
from testbed.orchestrator.evaluations import FIRST_WARNING, Backlog
from tests.orchestrator.handlers import Orchestrator


@pytest.fixture
def orchestrator(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "run")


def test_an_evaluation_is_written_when_its_result_and_its_bytes_are_known(
    orchestrator: Orchestrator,
) -> None:
    orchestrator.train(1)
    orchestrator.evaluate(1)
    assert orchestrator.requests == [ReadProcessors(), ReadIngress()]
    orchestrator.reports.handle(VersionEvaluated(1, 90.0, 0.5, orchestrator.began))
    orchestrator.evaluations.write_complete()
    assert orchestrator.records.outcome.accuracies == []
    moment = orchestrator.began + 2
    orchestrator.events.handle(IngressRead({"time": moment, "bytes": 900}))
    orchestrator.evaluations.write_complete()
    assert orchestrator.records.outcome.accuracies == [90.0]
    orchestrator.evaluate(1, after_restoration=True)  # on record already
    assert orchestrator.evaluations.ingress.due == 0


def test_the_first_evaluation_that_is_left_out_is_a_warning(orchestrator: Orchestrator) -> None:
    for version in (1, 2):
        orchestrator.evaluate(version)
        orchestrator.reports.handle(EvaluationLeftOut(version, "no room"))
    orchestrator.reports.handle(EvaluationLeftOut(3, "no room"))  # it was not due
    assert list(orchestrator.evaluations.left_out) == [1, 2]
    assert len(orchestrator.watcher.events) == 1


def test_a_warning_is_due_at_the_first_limit_and_at_each_doubling() -> None:
    backlog = Backlog()
    told = [waiting for waiting in range(5 * FIRST_WARNING) if backlog.warning(waiting)]
    assert told == [FIRST_WARNING, 2 * FIRST_WARNING, 4 * FIRST_WARNING]


def test_a_warning_is_not_repeated_after_the_number_has_fallen() -> None:
    backlog = Backlog()
    assert backlog.warning(3 * FIRST_WARNING) is not None
    assert [
        backlog.warning(waiting)
        for waiting in (FIRST_WARNING, 2 * FIRST_WARNING, 3 * FIRST_WARNING)
    ] == [None] * 3

"""Evaluations that were left out: in words, in the summary, and in the ingress."""

import pytest

from testbed.messages.reports import VersionEvaluated
from testbed.orchestrator.server_ingress import ServerIngress
from testbed.runs.left_out_evaluations import LeftOutEvaluations, ranges

LEDGER = {"payload_bytes": 10, "message_bytes": 20}


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([3, 4], "3, 4"),
        ([5, 3, 4, 9], "3 to 5, 9"),
        ([100, 300, 200, 250], "100, 200 to 300 in steps of 50"),
        ([100, 200, 300, 301, 302, 303], "100 to 300 in steps of 100, 301 to 303"),
    ],
)
def test_numbers_in_words(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_many_are_not_all_named() -> None:
    squares = [n * n for n in range(50)]
    assert ranges(squares, most=3) == "0, 1, 4, and 47 more"


def test_the_first_causes_a_warning_and_a_restore_removes_later_ones() -> None:
    left_out = LeftOutEvaluations()
    assert left_out.summary() == {}
    assert "of update 1,000 is left out" in (left_out.add(1000, "no room") or "")
    assert left_out.add(1100, "no room at all") is None
    assert left_out.summary() == {
        "evaluations_left_out": {"count": 2, "updates": "1000, 1100", "reason": "no room at all"}
    }
    assert left_out.told == ("2 evaluations were left out, of updates 1000, 1100 (no room at all)")
    left_out.go_back(1050)
    assert list(left_out) == [1000]
    assert LeftOutEvaluations(left_out).told == "1 evaluation was left out, of update 1000"


def test_a_left_out_evaluation_is_not_waited_for() -> None:
    ingress = ServerIngress()
    for version in (0, 100, 200):
        ingress.evaluation_due(version, version / 100, LEDGER)
    ingress.counted(9.0, 900)
    ingress.evaluated(VersionEvaluated(0, 10.0, 2.3, 0.0))
    ingress.evaluated(VersionEvaluated(200, 30.0, 2.1, 0.0))
    assert ingress.left_out(100)
    assert not ingress.left_out(100)
    assert [row["iteration"] for row in ingress.complete()] == [0, 200]
    assert ingress.due == 0


def test_results_that_will_not_come_are_given_up() -> None:
    ingress = ServerIngress()
    for version in (0, 100, 200):
        ingress.evaluation_due(version, version / 100, LEDGER)
    ingress.evaluated(VersionEvaluated(100, 30.0, 2.1, 0.0))
    assert ingress.unheard == 2
    assert ingress.give_up() == [0, 200]
    assert (ingress.unheard, ingress.due) == (0, 1)  # one still waits for a reading of the counter
    ingress.counted(9.0, 900)
    assert [row["iteration"] for row in ingress.complete()] == [100]

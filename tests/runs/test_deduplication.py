"""Records that a restored server produces a second time are dropped."""

import numpy as np

from testbed.messages.reports import EvaluationDue, RoleReport, UpdatesApplied
from testbed.runs.deduplication import Deduplication
from testbed.telemetry.update_rows import UPDATE


def updates(*iterations: int) -> UpdatesApplied:
    rows = np.zeros(len(iterations), UPDATE)
    rows["iteration"] = iterations
    return UpdatesApplied(iterations[-1], rows.tobytes())


def kept(report: RoleReport | None) -> list[int]:
    if report is None:
        return []
    assert isinstance(report, UpdatesApplied)
    rows = np.frombuffer(report.raw, UPDATE)
    return [int(one) for one in rows["iteration"]]


def test_a_repeated_row_is_dropped_in_messages_of_any_size() -> None:
    once = Deduplication()
    assert kept(once.new(updates(1, 2, 3, 4))) == [1, 2, 3, 4]
    once.back_to({"updates": 1})
    assert kept(once.new(updates(2, 3))) == []
    assert kept(once.new(updates(4, 5, 6))) == [5, 6]
    once.back_to({"updates": 5})
    assert kept(once.new(updates(6))) == []
    assert kept(once.new(updates(7))) == [7]


def test_a_second_restore_while_records_still_repeat() -> None:
    once = Deduplication()
    assert once.is_new("faults") and once.is_new("faults") and once.is_new("faults")
    once.back_to({"faults": 1})
    assert not once.is_new("faults")
    once.back_to({"faults": 2})
    assert not once.is_new("faults")
    assert once.is_new("faults")
    due = EvaluationDue(10, 1.0, 1.0, 0, 0)
    assert once.new(due) is due
    once.back_to({"evaluations": 0})
    assert once.new(due) is None


def test_an_evaluation_that_a_restored_server_asks_for_again_is_no_repeated_record() -> None:
    once = Deduplication({"evaluations": 2})
    once.back_to({"evaluations": 1})
    again = EvaluationDue(10, 1.0, 1.0, 0, 0, after_restoration=True)
    assert once.new(again) is again
    assert once.to_come_again("evaluations") == 1

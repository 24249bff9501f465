"""Records that a restored server produces a second time are dropped."""

import numpy as np

from testbed.channel import Message
from testbed.runs.deduplication import Deduplication
from testbed.telemetry.records import UPDATE


def updates(*iterations: int) -> Message:
    rows = np.zeros(len(iterations), UPDATE)
    rows["iteration"] = iterations
    return Message({"updates": len(rows), "version": iterations[-1]}, rows.tobytes())


def kept(message: Message | None) -> list[int]:
    if message is None:
        return []
    rows = np.frombuffer(message.raw, UPDATE)
    assert message.fields["updates"] == len(rows)
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
    checkpoint = Message({"checkpoint": 10, "time": 1.0})
    assert once.new(checkpoint) is checkpoint
    once.back_to({"evaluations": 0})
    assert once.new(checkpoint) is None

"""Each role reports on a channel of its own; reports are taken in the order of their sending."""

import itertools
import random
import threading
from collections.abc import Iterator

import pytest

from testbed.channel import Channel, InvalidMessageError
from testbed.messages.codec import send
from testbed.messages.reports import (
    DevicesConnected,
    EventReported,
    RoleReport,
    ServerListening,
    TrainingEnded,
    VersionEvaluated,
)
from testbed.orchestrator.report_channels import ReportChannels
from testbed.roles.arguments import RoleKind


@pytest.fixture
def channels() -> Iterator[ReportChannels]:
    made = ReportChannels()
    yield made
    made.close()


def opened(channels: ReportChannels, device: str, part: RoleKind, number: int) -> Channel:
    return channels.open(device, {"role": part, "number": number})


def test_reports_of_many_roles_come_in_the_order_of_their_sending(channels: ReportChannels) -> None:
    ends = [opened(channels, f"worker-{i}", "worker", i) for i in range(20)]
    chosen = random.Random(3).choices(range(20), k=1_000)
    for place, number in enumerate(chosen):
        send(ends[number], EventReported("info", f"{place}", number))
    taken = list(channels.take())
    assert [one.sender.number for one in taken] == chosen
    assert [int(str(one.report.text)) for one in taken] == list(range(1_000))  # type: ignore[union-attr]


def test_a_cause_comes_before_its_effect_while_both_are_sent(channels: ReportChannels) -> None:
    """Two threads report in turn, each after the other, as roles that send each other messages do."""
    ends = [opened(channels, f"worker-{i}", "worker", i) for i in range(2)]
    turns = [threading.Semaphore(1), threading.Semaphore(0)]

    def report(number: int) -> None:
        for place in range(number, 4_000, 2):
            turns[number].acquire()
            send(ends[number], EventReported("info", f"{place}", number))
            turns[1 - number].release()

    threads = [threading.Thread(target=report, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    found: list[int] = []
    while len(found) < 4_000:
        found += [int(str(one.report.text)) for one in channels.take()]  # type: ignore[union-attr]
    assert found == list(range(4_000))
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("part", "number", "report", "why"),
    [
        ("worker", 1, VersionEvaluated(1, 99.99, 0.0, 0.0), "a VersionEvaluated, which no worker"),
        ("server", -1, VersionEvaluated(1, 99.99, 0.0, 0.0), "a VersionEvaluated, which no server"),
        ("evaluator", 5, TrainingEnded(1), "a TrainingEnded, which no evaluator sends"),
        ("peer", 1, ServerListening(), "a ServerListening, which no peer sends"),
        ("server", -2, DevicesConnected(1, server=0), "a DevicesConnected of server 0, which"),
        ("aggregator", -3, DevicesConnected(1, server=-1), "a DevicesConnected of server -1"),
        ("worker", 1, EventReported("error", "x", 2), "an event of device 2, which it is not"),
        ("worker", 1, EventReported("\x1b[2J", "x", 1), "an event of the level"),
    ],
)
def test_a_report_of_somebody_else_is_refused_and_the_channel_ended(
    channels: ReportChannels, part: RoleKind, number: int, report: RoleReport, why: str
) -> None:
    end = opened(channels, "device", part, number)
    send(end, report)
    (taken,) = channels.take()
    assert isinstance(taken.report, InvalidMessageError) and why in str(taken.report)
    with pytest.raises(BrokenPipeError):
        send(end, report)
    assert not channels.readable()


def test_a_role_and_its_next_process_have_channels_of_their_own(channels: ReportChannels) -> None:
    first, second = (opened(channels, "worker-1", "worker", 1) for _ in range(2))
    for end, text in zip((first, second, first), ("a", "b", "c"), strict=True):
        send(end, EventReported("info", text, 1))
    first.close()
    taken = [one.report for one in itertools.chain(channels.take(), channels.take())]
    assert [one.text for one in taken] == ["a", "b", "c"]  # type: ignore[union-attr]
    channels.end("worker-1")
    with pytest.raises(BrokenPipeError):
        send(second, EventReported("info", "d", 1))

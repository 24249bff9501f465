"""Further servers at the admission of the first: over real sockets, from addresses of the loopback."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.messages.codec import encode
from testbed.messages.reports import (
    REPORTS,
    ConnectionClosed,
    DevicesConnected,
    DiagnosticsReported,
    EvaluationDue,
    EventReported,
    FinalParameters,
    RoleReport,
    ServerFinished,
    ServerListening,
    TrainingBegun,
    UpdatesApplied,
)
from testbed.standalone import messages
from testbed.standalone.admission import Admission
from testbed.standalone.shard_reports import LONGEST
from testbed.telemetry.update_rows import UPDATE
from tests.settings import SIMPLE, with_changes

SECRET = b"the secret of these very tests"
SESSION = bytes(range(32))
SIZES = [3, 3, 4]
SETTINGS = with_changes(SIMPLE, workers=1, updates=9, server_addresses=["", "", ""])


class First:
    """The admission of a run with three servers; each device has an address of its own."""

    def __init__(self) -> None:
        self.reports, writers = Channel.pair()
        self.lost = threading.Event()
        losing = self.lost.set
        self.admission = Admission(SECRET, SESSION, SETTINGS, writers, sizes=SIZES, losing=losing)
        self._opened: list[socket.socket] = []

    def ask(self, role: str, address: str) -> tuple[socket.socket, dict[str, Any]]:
        """Ask for admission; return the connection and the answer."""
        at = ("127.0.0.1", messages.PORT)
        connection = socket.create_connection(at, timeout=5, source_address=(address, 0))
        self._opened.append(connection)
        theirs = messages.challenge_of((messages.receive(connection) or {})["challenge"])
        mine = messages.challenge()
        proof = messages.device_proof(SECRET, theirs, mine, role)
        messages.send(connection, role=role, challenge=mine.hex(), proof=proof)
        return connection, messages.receive(connection) or {}

    def join(self, role: str, address: str) -> tuple[socket.socket, int]:
        """Join and be ready; return the connection and the number."""
        connection, answer = self.ask(role, address)
        messages.send(connection, ready=True)
        return connection, messages.parse(answer["admitted"])["number"]

    def begun(self) -> list[socket.socket]:
        """Begin with all roles; return the connections of the further servers."""
        shards = [self.join("shard", f"127.0.0.{i}")[0] for i in (2, 3)]
        self.join("evaluator", "127.0.0.9")
        self.join("worker", "127.0.0.10")
        self.admission.wait(5)
        for one in shards:
            messages.receive(one)
        return shards

    def reported(self) -> RoleReport | None:
        assert self.reports.readable(5)
        return REPORTS.receive(self.reports)

    def close(self) -> None:
        self.admission.end()
        for connection in self._opened:
            connection.close()
        self.reports.close()


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Iterator[First]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(messages, "PORT", free.getsockname()[1])
    made = First()
    yield made
    made.close()


def report(connection: socket.socket, message: RoleReport, **changes: object) -> None:
    content, raw = encode(message)
    messages.send_report(connection, content | changes, raw)


def test_servers_begin_first_and_devices_are_told_their_addresses_in_order(first: First) -> None:
    worker, _ = first.join("worker", "127.0.0.10")
    evaluator, _ = first.join("evaluator", "127.0.0.9")
    shards = [first.join("shard", f"127.0.0.{i}") for i in (5, 4)]
    assert [number for _, number in shards] == [-2, -3]
    first.admission.wait(5)
    told = {"go": True, "servers": ["127.0.0.5", "127.0.0.4"]}
    for connection, _ in shards:
        assert messages.receive(connection) == told
    worker.settimeout(0.2)
    with pytest.raises(TimeoutError):  # no server listens yet
        worker.recv(1)
    worker.settimeout(5)
    first.admission.go()
    assert [messages.receive(one) for one in (worker, evaluator)] == [told, told]


def test_too_few_further_servers_are_named(first: First) -> None:
    first.join("worker", "127.0.0.10")
    first.join("evaluator", "127.0.0.9")
    first.join("shard", "127.0.0.2")
    with pytest.raises(RunError) as refused:
        first.admission.wait(0.5)
    assert str(refused.value) == (
        "1 of the 2 further servers (devices.servers: 3) connected within 0.5 s: start the others "
        "(python -m testbed.standalone shard)"
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_a_server_where_the_run_has_one_already_is_refused(first: First, address: str) -> None:
    first.join("shard", "127.0.0.2")
    _, answer = first.ask("shard", address)
    assert answer["refused"].startswith(f"another server of the run is at {address}")
    assert "superfluous" not in answer
    assert first.join("shard", "127.0.0.3")[1] == -3


def test_a_superfluous_server_is_refused(first: First) -> None:
    for i in (2, 3):
        first.join("shard", f"127.0.0.{i}")
    _, answer = first.ask("shard", "127.0.0.4")
    assert answer == {
        "refused": "the run has all its servers (devices.servers: 3)",
        "superfluous": True,
    }


def test_before_training_another_server_takes_the_place_of_one_that_left(first: First) -> None:
    connection, number = first.join("shard", "127.0.0.2")
    connection.close()
    deadline = time.monotonic() + 5
    while number not in first.admission._free:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert first.join("shard", "127.0.0.2")[1] == number
    assert not first.lost.is_set()


def test_in_training_the_loss_of_a_server_is_reported_and_told_to_all(first: First) -> None:
    shards = first.begun()
    shards[1].close()
    assert first.lost.wait(5)
    reason = "its connection from 127.0.0.3 ended before training was over"
    assert first.reported() == EventReported("error", reason, -3)
    _, answer = first.ask("shard", "127.0.0.3")
    assert answer["superfluous"] is True
    first.admission.end()
    assert messages.receive(shards[0]) == {"end": True, "failed": f"server-2: {reason}"}


def test_a_server_that_has_finished_may_leave(first: First) -> None:
    for i, shard in enumerate(first.begun(), 1):
        report(shard, FinalParameters(0, bytes(4 * SIZES[i]), server=i))
        report(shard, ServerFinished(9, 1, 2, {}, server=i))
        messages.send(shard, done=True)
    first.admission.wait_for_shards(5)
    for connection in first._opened[:2]:
        connection.close()
    assert not first.lost.wait(0.5)


def test_a_report_arrives_with_the_moment_of_its_arrival(first: First) -> None:
    shard = first.begun()[0]
    before = time.monotonic()
    report(shard, TrainingBegun(1e9, server=1))
    found = first.reported()
    assert isinstance(found, TrainingBegun)
    assert before <= found.host_time <= time.monotonic()
    rows = np.zeros(2, UPDATE)
    rows["time"] = 0.5, 0.75
    for message in (
        ServerListening(1),
        DevicesConnected(1, 1),
        UpdatesApplied(2, rows.tobytes(), 1),
        EventReported("warning", "a text", 0),
        ConnectionClosed(0, "127.0.0.10", 5, 6, 7, 0, 7, 8, 0, None, server=1),
    ):
        report(shard, message)
        assert first.reported() == message


def bad(message: RoleReport, **changes: object) -> tuple[dict[str, Any], bytes]:
    content, raw = encode(message)
    return content | changes, raw


NAN = np.zeros(1, UPDATE)
NAN["time"] = np.nan


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (bad(ServerListening(2)), "of another server"),
        (bad(ServerListening(0)), "of another server"),
        (bad(DevicesConnected(2, 1)), "a report of 2 workers, and there are 1"),
        (bad(DevicesConnected(1, 1), count=True), "whose count is not valid"),
        (bad(DevicesConnected(1, 1), count=10**400), "whose count is not valid"),
        (bad(DevicesConnected(1, 1), count="1"), "whose count is not valid"),
        (bad(DevicesConnected(1, 1), more=1), "with more, which it does not have"),
        (bad(TrainingBegun(float("nan"), 1)), "whose host_time is not valid"),
        (bad(EvaluationDue(10, 0, 0, 1, 1, server=1)), "of a version beyond 9"),
        (bad(EvaluationDue(5, 0, 0, -1, 1, server=1)), "whose payload_bytes is not valid"),
        (bad(UpdatesApplied(1, b"", 1)), "not whole rows"),
        (bad(UpdatesApplied(1, bytes(UPDATE.itemsize + 1), 1)), "not whole rows"),
        (bad(UpdatesApplied(1, NAN.tobytes(), 1)), "an invalid time"),
        (bad(EventReported("error", "a text", 2)), "unknown level or device"),
        (bad(EventReported("error", "a text", -3)), "unknown level or device"),
        (bad(EventReported("fatal", "a text", None)), "unknown level or device"),
        (bad(FinalParameters(4, bytes(4), 1)), "that its slice does not have"),
        (bad(FinalParameters(0, bytes(16), 1)), "that its slice does not have"),
        (bad(ServerFinished(9, 1, 2, {}, 1)), "without all final parameters"),
        (bad(DiagnosticsReported(1, 1, bytes(8), 1)), "unknown kind 'diagnostics_reported'"),
    ],
)
def test_a_report_that_cannot_be_true_ends_the_connection(
    first: First, content: tuple[dict[str, Any], bytes], why: str
) -> None:
    shard = first.begun()[0]
    messages.send_report(shard, *content)
    assert shard.recv(1) == b""
    event = first.reported()
    assert isinstance(event, EventReported)
    assert (event.level, event.device) == ("error", -2)
    assert why in event.text
    assert first.lost.wait(5)


@pytest.mark.parametrize("count", [LONGEST + 1, -1, 1.5, True, None, 1 << 70])
def test_raw_bytes_are_announced_before_any_memory_is_taken(first: First, count: object) -> None:
    shard = first.begun()[0]
    content, _ = encode(FinalParameters(0, b"", 1))
    messages.send(shard, report=content, bytes=count)
    assert shard.recv(1) == b""
    event = first.reported()
    assert isinstance(event, EventReported)
    assert f"raw bytes are not from 0 to {LONGEST:,}" in event.text


def test_other_devices_may_not_report_as_servers_do(first: First) -> None:
    first.begun()
    worker = first._opened[3]
    report(worker, ServerListening(1))
    event = first.reported()
    assert isinstance(event, EventReported)
    assert (event.level, event.device) == ("warning", 0)
    assert "a message that a device may not send" in event.text

"""Admission over real sockets: the devices' numbers, and how their messages are handled."""

import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.messages.reports import REPORTS, EventReported, RoleReport, VersionEvaluated
from testbed.standalone import admission, messages
from testbed.standalone.admission import Admission
from testbed.standalone.device import Admitted, SuperfluousError, join, stand_by
from tests.roles.server.test_server import no_descriptors
from tests.settings import SIMPLE, with_changes

SECRET = b"the secret of these very tests"
SESSION = bytes(range(32))
WORKERS = 2
SETTINGS = with_changes(SIMPLE, workers=WORKERS, secret="not to be sent", updates=9)


class Server:
    """An admission and its reports."""

    def __init__(self) -> None:
        self._reports, writers = Channel.pair()
        self.admission = Admission(SECRET, SESSION, SETTINGS, writers)
        self._connections: list[socket.socket] = []

    def join(self, role: str = "worker", secret: bytes = SECRET) -> Admitted:
        admitted = join("127.0.0.1", role, secret, patience=5)
        admitted.connection.settimeout(5)
        self._connections.append(admitted.connection)
        return admitted

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", messages.PORT), timeout=5)
        self._connections.append(connection)
        return connection

    def reported(self) -> RoleReport:
        report = REPORTS.receive(self._reports)
        assert report is not None
        return report

    def event(self) -> EventReported:
        report = self.reported()
        assert isinstance(report, EventReported)
        return report

    def close(self) -> None:
        self.admission.end()
        for connection in self._connections:
            connection.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(messages, "PORT", free.getsockname()[1])
    made = Server()
    yield made
    made.close()


def until(happened: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 5
    while not (value := happened()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def test_each_device_gets_a_number_and_the_same_settings(server: Server) -> None:
    admitted = [server.join(role) for role in ("worker", "evaluator", "worker")]
    assert [one.number for one in admitted] == [0, WORKERS, 1]
    secret = messages.greeting_secret(SECRET, SESSION)
    expected = with_changes(SETTINGS, server_addresses=["127.0.0.1"], secret=secret)
    told = [asdict(one.settings) for one in admitted]
    assert told == [json.loads(json.dumps(asdict(expected)))] * 3


def test_the_run_s_secret_is_not_sent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, Any]] = []
    send = messages.send

    def recorded(connection: socket.socket, **fields: Any) -> None:
        said.append(fields)
        send(connection, **fields)

    monkeypatch.setattr(messages, "send", recorded)
    server.join("worker")
    assert any("admitted" in fields for fields in said)
    assert "not to be sent" not in str(said)


def test_a_server_of_another_version_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "asdict", lambda _: {"seed": 1})
    with pytest.raises(RunError, match="runs another version of the testbed"):
        server.join("worker")


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_a_superfluous_device_is_refused(server: Server, role: str) -> None:
    for _ in range(WORKERS if role == "worker" else 1):
        server.join(role)
    too_many = f"refuses this {role}: the run has (all its 2 workers|an evaluator)"
    with pytest.raises(SuperfluousError, match=too_many):
        server.join(role)


def test_a_superfluous_device_stands_by_until_the_server_ends(server: Server) -> None:
    standing = threading.Thread(target=stand_by, args=("127.0.0.1",), daemon=True)
    standing.start()
    standing.join(3)
    assert standing.is_alive()
    server.close()
    standing.join(10)
    assert not standing.is_alive()


def test_the_number_of_a_device_that_left_is_given_again(server: Server) -> None:
    first = server.join()
    server.join()
    first.connection.close()

    def again() -> Admitted | None:
        try:
            return server.join()
        except RunError:
            return None

    assert until(again).number == first.number


def test_another_secret_is_refused_on_either_side(server: Server) -> None:
    with pytest.raises(RunError, match="another TESTBED_SECRET"):
        server.join(secret=SECRET + b".")
    assert "another secret" in server.event().text
    assert server.join().number == 0  # it took no number


def test_the_secrets_are_not_sent_over_the_network(server: Server) -> None:
    with server.connect() as raw:
        theirs = messages.challenge_of((messages.receive(raw) or {})["challenge"])
        mine = messages.challenge()
        proof = messages.device_proof(SECRET, theirs, mine, "worker")
        messages.send(raw, role="worker", challenge=mine.hex(), proof=proof)
        answer = raw.recv(1 << 16)
    assert b"admitted" in answer
    for secret in (SECRET, SECRET.hex().encode(), b"not to be sent"):
        assert secret not in answer
    assert messages.greeting_secret(SECRET, SESSION).encode() not in answer


def test_a_server_without_the_secret_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(messages, "PORT", listener.getsockname()[1])

        def pretend() -> None:
            connection, _ = listener.accept()
            with connection:
                messages.send(connection, challenge=messages.challenge().hex())
                messages.receive(connection)
                messages.send(connection, admitted="{}", proof="0" * 64)

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(RunError, match="started with another TESTBED_SECRET"):
            join("127.0.0.1", "worker", SECRET, patience=5)


def test_a_missing_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(messages, "PORT", free.getsockname()[1])
    with pytest.raises(RunError, match=r"no server answered at 127\.0\.0\.1"):
        join("127.0.0.1", "worker", SECRET, patience=0.1)


def test_devices_begin_when_an_evaluator_and_a_worker_are_ready(server: Server) -> None:
    with pytest.raises(RunError, match="no worker connected"):
        server.admission.wait(0.05)
    worker = server.join()
    messages.send(worker.connection, ready=True)
    with pytest.raises(RunError, match="no evaluator connected"):
        server.admission.wait(0.2)
    evaluator = server.join("evaluator")
    messages.send(evaluator.connection, ready=True)
    server.admission.wait(5)
    late = server.join()
    server.admission.go()
    messages.send(late.connection, ready=True)
    for one in (worker, evaluator, late):
        assert messages.receive(one.connection) == {"go": True}
    server.admission.end()
    for one in (worker, evaluator, late):
        assert messages.receive(one.connection) == {"end": True}


def test_the_evaluator_s_results_are_reported_before_it_is_done(server: Server) -> None:
    evaluator = server.join("evaluator")
    messages.send(evaluator.connection, evaluated=7, accuracy=81.5, loss=0.25)
    messages.send(evaluator.connection, done=True)
    server.admission.wait_for_evaluator(5)
    assert server.reported() == VersionEvaluated(7, 81.5, 0.25, connected=0.0)


def test_a_complaint_is_reported_with_its_device(server: Server) -> None:
    server.join()
    messages.send(server.join().connection, complaint="no memory")
    assert server.reported() == EventReported("error", "no memory", 1)


@pytest.mark.parametrize(
    "said",
    [
        {"evaluated": 7, "accuracy": 99.0, "loss": 0.0},
        {"finished": 7},
        {"ready": 1.5},
        {"parameters": 0},
    ],
)
def test_a_worker_that_sends_an_invalid_message_is_cut_off(
    server: Server, said: dict[str, Any]
) -> None:
    worker = server.join()
    messages.send(worker.connection, **said)
    assert worker.connection.recv(1) == b""
    event = server.event()
    assert event.device == worker.number
    assert "may not send" in event.text


def test_a_check_whether_the_port_is_open_is_not_reported(server: Server) -> None:
    server.connect().close()
    server.join("evaluator")
    with pytest.raises(RunError):
        server.join("evaluator")
    messages.send(server.join().connection, complaint="the first report")
    assert server.event().text == "the first report"


def test_the_number_of_a_device_that_dies_before_training_is_given_again(server: Server) -> None:
    first = server.join()
    server.join()
    messages.send(first.connection, ready=True)
    until(lambda: server.admission._missing() == "evaluator")
    first.connection.close()
    until(lambda: server.admission._missing() == "worker")
    again = server.join()
    assert again.number == first.number
    messages.send(again.connection, ready=True)
    until(lambda: server.admission._missing() == "evaluator")
    server.admission.go()
    assert messages.receive(again.connection) == {"go": True}


def test_a_stranger_that_sends_slowly_is_closed_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "HANDSHAKE_TIMEOUT", 1.0)
    slow = server.connect()
    messages.receive(slow)
    slow.sendall((4000).to_bytes(4, "big"))
    began = time.monotonic()
    with pytest.raises(OSError):
        while True:
            slow.sendall(b" ")
            time.sleep(0.2)
            assert time.monotonic() < began + 20, "it may take as long as it likes"


def test_many_strangers_keep_no_device_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "HANDSHAKE_TIMEOUT", 600.0)
    for _ in range(admission.STRANGERS + WORKERS + 40):
        stranger = server.connect()
        messages.receive(stranger)
        stranger.sendall(b"\0")
    for role in ("worker", "evaluator", "worker"):
        server.join(role)
    warning = server.event()
    assert warning.level == "warning"
    assert "have not proved that they know the secret, most of them from 127.0.0.1" in warning.text
    assert len(server.admission._strangers) <= admission.STRANGERS


def test_many_strangers_of_one_address_do_not_displace_others(server: Server) -> None:
    other = socket.create_connection(
        ("127.0.0.1", messages.PORT), timeout=5, source_address=("127.0.0.2", 0)
    )
    with other:
        theirs = messages.challenge_of((messages.receive(other) or {})["challenge"])
        for _ in range(admission.STRANGERS + 10):
            messages.receive(server.connect())
        mine = messages.challenge()
        proof = messages.device_proof(SECRET, theirs, mine, "worker")
        messages.send(other, role="worker", challenge=mine.hex(), proof=proof)
        assert "admitted" in (messages.receive(other) or {})


def test_without_free_descriptors_it_warns_once_and_goes_on(server: Server) -> None:
    late = socket.socket()
    server._connections.append(late)
    late.settimeout(20)
    with no_descriptors():
        late.connect(("127.0.0.1", messages.PORT))
        text = server.event().text
        assert "no device can be admitted for now (Too many open files)" in text
        began = time.process_time()
        time.sleep(1.5)
        assert time.process_time() - began < 1.0, "it asks again and again"
    assert "challenge" in (messages.receive(late) or {})
    messages.send(server.join().connection, complaint="the next report")
    assert server.event().text == "the next report"


FOUND = {"evaluated": 7, "accuracy": 81.5, "loss": 0.25}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"loss": 10**400}, "an evaluation of version 7 with a loss that is not a number"),
        ({"loss": True}, "a loss that is not a number"),
        ({"loss": "0.25"}, "a loss that is not a number"),
        ({"accuracy": math.nan}, "version 7 with an accuracy that is not from 0 to 100"),
        ({"accuracy": math.inf}, "an accuracy that is not from 0 to 100"),
        ({"accuracy": 10**400}, "an accuracy that is not from 0 to 100"),
        ({"accuracy": -0.5}, "an accuracy that is not from 0 to 100"),
        ({"accuracy": True}, "an accuracy that is not from 0 to 100"),
        ({"accuracy": "81.5"}, "an accuracy that is not from 0 to 100"),
        ({"measured": "3"}, "a measured value that is not a number"),
        ({"evaluated": 10}, "an evaluation of a version that is not from 0 to 9"),
        ({"evaluated": -1}, "an evaluation of a version that is not from 0 to 9"),
        ({"evaluated": True}, "an evaluation of a version that is not from 0 to 9"),
        ({"evaluated": 7.0}, "an evaluation of a version that is not from 0 to 9"),
    ],
)
def test_an_impossible_result_of_an_evaluation_is_refused(
    server: Server, said: dict[str, Any], reason: str
) -> None:
    evaluator = server.join("evaluator")
    messages.send(evaluator.connection, **FOUND | said)
    assert evaluator.connection.recv(1) == b""
    event = server.event()
    assert (event.level, event.device) == ("warning", WORKERS)
    assert reason in event.text
    until(lambda: WORKERS in server.admission._free)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_the_loss_of_a_diverged_model_is_reported_as_nan(server: Server, loss: float) -> None:
    evaluator = server.join("evaluator")
    messages.send(evaluator.connection, **FOUND | {"loss": loss, "accuracy": 10})
    found = server.reported()
    assert isinstance(found, VersionEvaluated)
    assert (found.version, found.accuracy) == (7, 10)
    assert math.isnan(found.loss)

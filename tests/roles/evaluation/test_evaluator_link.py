"""The link to the evaluator, between a pretended owner and a raw socket."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

from testbed.channel import Channel
from testbed.messages.reports import REPORTS, EvaluationDue, EvaluationLeftOut, EventReported
from testbed.roles.evaluation import evaluator_link
from testbed.roles.evaluation.evaluator_link import Asked, EvaluatorLink
from testbed.roles.evaluation.snapshots import IN_MEMORY
from testbed.roles.reporting import RoleReporter
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.updates import as_bytes
from testbed.wire.frames import HEADER, Kind, Receiver, header, parse

SIZE = 100_000
EVALUATOR = 7


class Owner:
    """Connections that only the evaluator's belongs to."""

    def __init__(self) -> None:
        self.ours, theirs = Channel.pair()
        self.report = RoleReporter(theirs)
        self.link: EvaluatorLink
        self.closed: list[str | None] = []

    @contextlib.contextmanager
    def sending(self, connection: Connection) -> Iterator[None]:
        try:
            yield
        except BrokenConnectionError as error:
            self.close(connection, f"{error}")

    def say_stop(self, connections: Iterable[Connection]) -> None:
        for connection in connections:
            connection.end(header(Kind.STOP))

    def close(self, connection: Connection, reason: str | None) -> None:
        connection.socket.close()
        self.closed.append(reason)
        self.link.connection = None

    def told(self) -> list[object]:
        self.ours._socket.setblocking(False)
        found: list[object] = []
        with contextlib.suppress(BlockingIOError):
            while report := REPORTS.receive(self.ours):
                found.append(report)
        return found


@pytest.fixture
def made() -> Iterator[Callable[..., tuple[Owner, socket.socket]]]:
    """Make an owner, its link and the evaluator's end of the connection."""
    ends: list[socket.socket] = []

    def make(
        *, waited_for: bool = False, patient: bool = False, comes_back: bool = False
    ) -> tuple[Owner, socket.socket]:
        owner = Owner()
        owner.link = EvaluatorLink(
            *(owner, 4 * SIZE, owner.report, None),
            number=EVALUATOR,
            waited_for=waited_for,
            patient=patient,
            comes_back=comes_back,
            remembered=comes_back,
        )
        pair = socket.socketpair()
        ends.extend(pair)
        receiver = Receiver({}, memoryview(bytearray(4096)))
        pair[1].settimeout(10)
        owner.link.greeted(Connection(pair[0], "", 0, receiver, time.monotonic()))
        return owner, pair[1]

    yield make
    for end in ends:
        end.close()


def ask(owner: Owner, version: int, *, last: bool = False) -> None:
    vector = np.full(SIZE, version, np.float32)
    owner.link.ask(Asked(version, 1.0, (2, 3, 0, 0)), as_bytes(vector), last=last)


def receive(evaluator: socket.socket) -> tuple[Kind, int]:
    head = parse(evaluator.recv(HEADER.size, socket.MSG_WAITALL), dict.fromkeys(Kind, 4 * SIZE))
    if head.length:
        evaluator.recv(head.length, socket.MSG_WAITALL)
    return head.kind, head.number


def take(owner: Owner, evaluator: socket.socket) -> None:
    """Have the evaluator receive parameters, while the owner sends what is pending."""
    connection = owner.link.connection
    assert connection is not None
    evaluator.setblocking(False)
    left = HEADER.size + 4 * SIZE
    while left:
        with contextlib.suppress(BlockingIOError):
            left -= len(evaluator.recv(left))
        if connection.pending:
            connection.send_pending()
            owner.link.send()
    evaluator.settimeout(10)


def answered(owner: Owner, evaluator: socket.socket, versions: Iterable[int]) -> None:
    """Have the evaluator receive and report versions."""
    for version in versions:
        take(owner, evaluator)
        owner.link.heard(version)


def test_what_is_due_is_reported_and_what_has_no_room_is_left_out(
    made: Callable[..., tuple[Owner, socket.socket]],
) -> None:
    owner, evaluator = made()
    for version in range(IN_MEMORY + 3):  # one is pending at the connection
        ask(owner, version)
    ask(owner, 99, last=True)
    told = owner.told()
    assert [one.version for one in told if isinstance(one, EvaluationDue)] == [
        *range(IN_MEMORY + 3),
        99,
    ]
    left_out = [one.version for one in told if isinstance(one, EvaluationLeftOut)]
    assert left_out == list(range(IN_MEMORY + 3 - len(left_out), IN_MEMORY + 3))
    assert left_out
    kept = [version for version in range(IN_MEMORY + 3) if version not in left_out]
    answered(owner, evaluator, [*kept, 99])
    owner.link.stop()
    assert receive(evaluator)[0] is Kind.STOP


def test_a_link_that_waits_leaves_nothing_out_and_is_crowded(
    made: Callable[..., tuple[Owner, socket.socket]],
) -> None:
    owner, evaluator = made(waited_for=True)
    count = IN_MEMORY + 5
    for version in range(count):
        ask(owner, version)
    assert owner.link.crowded
    answered(owner, evaluator, range(count))
    assert not owner.link.crowded
    assert not [one for one in owner.told() if isinstance(one, EvaluationLeftOut)]


@pytest.mark.parametrize("patient", [False, True])
def test_an_evaluator_with_nothing_left_to_do_has_as_long_as_one_that_has_if_the_link_is_patient(
    made: Callable[..., tuple[Owner, socket.socket]],
    monkeypatch: pytest.MonkeyPatch,
    patient: bool,
) -> None:
    monkeypatch.setattr(evaluator_link, "LEAVING_TIMEOUT", 0.0)
    owner, evaluator = made(patient=patient)
    ask(owner, 0)
    owner.link.give_up(0.0)
    assert not owner.closed  # one evaluation is missing
    answered(owner, evaluator, [0])
    owner.link.give_up(0.0)
    assert len(owner.closed) == (not patient)
    if patient:
        monkeypatch.setattr(evaluator_link, "EVALUATOR_TIMEOUT", 0.0)
        owner.link.give_up(0.0)
    assert owner.closed == ["nothing was heard of it for 0 s"]
    assert not [one for one in owner.told() if isinstance(one, EventReported)]
    assert not owner.link.is_missing


def test_a_server_that_may_be_killed_says_stop_when_all_was_reported(
    made: Callable[..., tuple[Owner, socket.socket]],
) -> None:
    owner, evaluator = made(comes_back=True)
    settled: list[bool] = []
    ask(owner, 4)
    take(owner, evaluator)
    owner.link.stop(lambda: settled.append(True))
    assert [one[0] for one in owner.link.state()] == [4]
    assert not settled
    owner.link.heard(4)
    owner.link.stop(lambda: settled.append(True))
    assert settled == [True]
    assert owner.link.state() == []
    assert receive(evaluator)[0] is Kind.STOP
    owner.link.stop(lambda: settled.append(True))
    assert settled == [True]


def test_a_broken_connection_is_the_owner_s_to_handle(
    made: Callable[..., tuple[Owner, socket.socket]],
) -> None:
    owner, evaluator = made(comes_back=True)
    evaluator.close()
    ask(owner, 1)
    assert len(owner.closed) == 1
    assert owner.link.is_missing

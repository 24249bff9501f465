"""A device's links, over sockets of the test."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from testbed.encoding_choice import EncodingChoice, Pulls
from testbed.engine.events import Event, Opened, Received, Stopped
from testbed.roles.sockets import server_links as module
from testbed.roles.sockets.parameters import KeptParameters, ParametersInTurn, ReceivedParameters
from testbed.roles.sockets.server_links import ServerLinks
from testbed.roles.transport import endpoint
from testbed.roles.transport.greeting import Greeted
from testbed.roles.transport.kernel_queues import unread
from testbed.training.slices import slices
from testbed.updates import FloatVector, Layout, SparseUpdate
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, Codec
from testbed.wire.frames import HEADER, Head, Kind, header

LAYOUT = Layout(("a", "b"), (60_000, 40_001))
CUT = slices(LAYOUT, 2)
ALL = slices(LAYOUT, 1)


class Place:
    """The links of a device, and the servers' ends of them."""

    def __init__(
        self, parameters: ReceivedParameters, *, asks: bool = False, back: bool = False
    ) -> None:
        self.parameters = parameters
        self.servers: list[socket.socket] = []
        self.has_left = False
        self.links = ServerLinks(self._greet, parameters, asks=asks, comes_back=back, leaves=back)

    def _greet(self, server: int) -> Greeted:
        if self.has_left:
            raise ConnectionRefusedError
        with socket.create_server(("127.0.0.1", 0)) as listener:
            mine = socket.create_connection(listener.getsockname())
            theirs = listener.accept()[0]
        self.servers[server : server + 1] = [theirs]
        return Greeted(mine)

    def answer(
        self, server: int, version: int, count: int | None = None, *, value: float | None = None
    ) -> None:
        """Send a server's parameters, of one value, or the first ``count`` bytes of the message."""
        one = ALL[0] if len(self.links.links) == 1 else CUT[server]
        value = version + server / 4 if value is None else value
        body = np.full(one.size, value, np.float32).tobytes()
        head = header(Kind.PARAMETERS, version, encoding=DENSE, length=len(body))
        self.servers[server].sendall((head + body)[:count])

    def kill(self, server: int) -> None:
        reset = struct.pack("ii", 1, 0)
        self.servers[server].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        self.servers[server].close()

    def heard(self, seconds: float = 10.0) -> list[Event]:
        """Return the next events."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if events := self.links.wait(deadline - time.monotonic()):
                return events
        raise AssertionError("nothing was heard")

    def put(self, *bases: int) -> FloatVector:
        vector = np.zeros(LAYOUT.total, np.float32)
        self.parameters.put(bases, vector, self.links.take)
        return vector

    def close(self) -> None:
        self.links.close()
        for one in self.servers:
            one.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Place]]:
    made: list[Place] = []

    def one(parameters: ReceivedParameters, *, asks: bool = False, back: bool = False) -> Place:
        made.append(Place(parameters, asks=asks, back=back))
        return made[-1]

    yield one
    for place in made:
        place.close()


def kept(
    pulls: Pulls = "full",
    *,
    several: bool = True,
    only_newest: bool = False,
    overlaps: bool = False,
) -> KeptParameters:
    cut = CUT if several else ALL
    return KeptParameters(cut, pulls, only_newest=only_newest, overlaps=overlaps)


Make = Callable[..., Place]


def test_slices_of_all_servers_make_one_vector(make: Make) -> None:
    place = make(kept())
    place.answer(1, 3)
    assert place.heard() == [Received(1, 3)]
    place.answer(0, 5)
    assert place.heard() == [Received(0, 5)]
    vector = place.put(5, 3)
    assert set(vector[: CUT[0].size]) == {5.0}
    assert set(vector[CUT[0].size :]) == {3.25}


def test_versions_are_kept_until_a_later_one_is_used(make: Make) -> None:
    place = make(kept(several=False))
    assert isinstance(place.parameters, KeptParameters)
    for version in (0, 1, 2):
        place.answer(0, version)
        assert place.heard() == [Received(0, version)]
    assert set(place.put(1)) == {1.0}
    assert [place.parameters.has(0, version) for version in (0, 1, 2)] == [False, True, True]


@pytest.mark.parametrize(
    ("only_newest", "overlaps", "used"),
    [
        (True, False, [[0.5], [0.5]]),
        (False, False, [[1.0], [0.5]]),  # in their order
        (False, True, [[1.0], [1.0]]),  # what it has of that version
    ],
)
@pytest.mark.parametrize("is_used", [False, True])
def test_a_version_that_comes_again(
    make: Make, only_newest: bool, overlaps: bool, used: list[list[float]], is_used: bool
) -> None:
    place = make(kept(several=False, only_newest=only_newest, overlaps=overlaps))
    place.answer(0, 1)
    assert place.heard() == [Received(0, 1)]
    if is_used:
        assert set(place.put(1)) == {1.0}
    place.answer(0, 1, value=0.5)
    assert place.heard() == [Received(0, 1)]
    found = [sorted(set(place.put(1))) for _ in range(2)]
    assert found == (used if not is_used else [used[1], used[1]])
    place.answer(0, 2)
    assert place.heard() == [Received(0, 2)]
    assert set(place.put(2)) == {2.0}


@pytest.mark.parametrize("in_turn", [True, False])
def test_an_answer_wakes_a_device_that_asks_once_when_it_is_whole(
    make: Make, in_turn: bool
) -> None:
    place = make(ParametersInTurn(ALL[0]) if in_turn else kept(several=False), asks=True)
    place.links.send(0, [b"pull"], asks=True)
    assert place.servers[0].recv(4) == b"pull"
    place.answer(0, 7, -1)
    assert not place.links.links[0].readable.poll(200)
    place.servers[0].sendall(np.float32(7).tobytes()[-1:])
    assert place.heard() == [Received(0, 7)]
    assert set(place.put(7)) == {7.0}


@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.parametrize("heard", [True, False])
def test_so_does_one_that_was_asked_for_before_the_last_one_was_read(
    make: Make, in_turn: bool, heard: bool
) -> None:
    """A worker that computes while it sends asks so, as soon as it has heard of an answer or before;
    one that wakes it early is read in parts, which the kernel acknowledges together."""
    place = make(ParametersInTurn(ALL[0]) if in_turn else kept(several=False), asks=True)
    place.links.send(0, [b"pull"], asks=True)
    if not heard:
        place.links.send(0, [b"pull"], asks=True)
    place.answer(0, 7)
    assert place.heard() == [Received(0, 7)]
    if heard:
        place.links.send(0, [b"pull"], asks=True)
    assert set(place.put(7)) == {7.0}
    place.answer(0, 8, -1)
    assert not place.links.links[0].readable.poll(200)
    place.servers[0].sendall(np.float32(8).tobytes()[-1:])
    assert place.heard() == [Received(0, 8)]


@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.parametrize("asks", [True, False])
def test_an_answer_that_stalls_is_read_as_far_as_it_came(
    make: Make, in_turn: bool, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of it may wait for the receive window, which only reading opens."""
    for one in (module, endpoint):
        monkeypatch.setattr(one, "STALLED", 0.05)
    place = make(ParametersInTurn(ALL[0]) if in_turn else kept(several=False), asks=asks)
    if asks:
        place.links.send(0, [b"pull"], asks=True)
    place.answer(0, 2, 20_000)
    rest = np.full(ALL[0].size, 2.0, np.float32).tobytes()[20_000 - HEADER.size :]
    # It arrives while the reader sleeps: less than the mark must wake it.
    late = threading.Timer(0.3, place.servers[0].sendall, [rest])
    if in_turn:
        assert place.heard() == [Received(0, 2)]
        late.start()
    else:
        deadline = time.monotonic() + 10
        while unread(place.links.links[0].end.socket):
            assert place.links.wait(0.05) == []
            assert time.monotonic() < deadline
        late.start()
        assert place.heard() == [Received(0, 2)]
    assert set(place.put(2)) == {2.0}
    late.join()


def test_a_server_that_reads_nothing_delays_no_other(make: Make) -> None:
    place = make(kept())
    large, small = bytes(32 << 20), b"push"
    began = time.monotonic()
    place.links.send(0, [large])
    place.links.send(1, [small])
    assert time.monotonic() - began < 5
    assert place.links.links[0].end.pending
    assert place.servers[1].recv(4) == small
    place.answer(1, 1)
    assert place.heard() == [Received(1, 1)]
    # When it reads at last, it gets everything.
    place.servers[0].setblocking(False)
    received = 0
    while received < len(large):
        place.links.wait(0.0)
        try:
            received += len(place.servers[0].recv(1 << 20))
        except BlockingIOError:
            continue
    assert not place.links.links[0].end.pending


def test_a_server_that_has_said_stop_is_sent_to_and_its_end_is_no_error(make: Make) -> None:
    place = make(kept())
    place.answer(0, 4)
    place.servers[0].sendall(header(Kind.STOP))
    place.servers[0].shutdown(socket.SHUT_WR)
    assert place.heard() == [Received(0, 4)]
    assert place.heard() == [Stopped(0)]
    assert not place.links.all_stopped
    place.links.send(0, [b"late"], asks=True)
    assert place.servers[0].recv(4) == b"late"
    assert not place.links.links[0].awaited
    place.servers[0].close()
    for _ in range(3):
        place.links.send(0, [b"late"])
        assert place.links.wait(0.05) == []
    place.servers[1].sendall(header(Kind.STOP))
    assert place.heard() == [Stopped(1)]
    assert place.links.all_stopped
    place.links.finish()


def test_a_connection_that_ends_without_stop_is_an_error(make: Make) -> None:
    place = make(kept())
    place.servers[1].close()
    with pytest.raises(ConnectionError, match="the server is gone: it closed the connection"):
        place.heard()


def until_opened(place: Place, server: int) -> None:
    deadline = time.monotonic() + 10
    while (events := place.links.wait(0.05)) == []:
        assert time.monotonic() < deadline
    assert events == [Opened(server, 1)]


@pytest.mark.parametrize("noticed", ["receiving", "sending", "waiting for another"])
def test_a_server_that_was_killed_is_greeted_again_and_the_others_notice_nothing(
    make: Make, noticed: str
) -> None:
    place = make(kept(only_newest=True), asks=True, back=True)
    for server in (0, 1):
        place.links.send(server, [b"pull"], asks=True)
        place.answer(server, 7)
        assert place.servers[server].recv(4) == b"pull"
        assert place.heard() == [Received(server, 7)]
    if noticed == "waiting for another":
        place.links.send(1, [b"pull"], asks=True)
        assert place.servers[1].recv(4) == b"pull"
    place.kill(0)
    if noticed == "sending":
        place.links.send(0, [b"lost"])
        place.links.send(0, [b"lost"])
    until_opened(place, 0)
    place.links.send(1, [b"push"])
    assert place.servers[1].recv(4) == b"push"
    place.links.send(0, [b"again"], asks=True)
    assert place.servers[0].recv(9) == b"again"
    place.answer(0, 3)
    assert place.heard() == [Received(0, 3)]
    assert set(place.put(3, 7)[: CUT[0].size]) == {3.0}


def test_parameters_that_are_lost_in_the_turn_are_a_connection_that_broke(make: Make) -> None:
    place = make(ParametersInTurn(ALL[0]), asks=True, back=True)
    place.links.send(0, [b"pull"], asks=True)
    place.answer(0, 7, 200_000)
    place.servers[0].close()
    assert place.heard() == [Received(0, 7)]
    with pytest.raises(ConnectionError):
        place.put(7)
    until_opened(place, 0)
    place.links.send(0, [b"pull"], asks=True)
    place.answer(0, 2)
    assert place.heard() == [Received(0, 2)]
    assert set(place.put(2)) == {2.0}


def test_a_server_that_was_killed_and_has_left_needs_nothing_any_more(make: Make) -> None:
    place = make(kept(), back=True)
    place.has_left = True
    place.kill(0)
    assert place.heard() == [Stopped(0)]
    place.links.send(0, [b"dropped"])
    place.answer(1, 4)
    assert place.heard() == [Received(1, 4)]


class OneAtATime(KeptParameters):
    def came(self, conversation: int, head: Head) -> bool:
        super().came(conversation, head)
        return False


def test_what_is_held_stays_until_it_is_released_and_over_another_session(make: Make) -> None:
    place = make(OneAtATime(CUT, "full", only_newest=True), back=True)
    for version in (0, 1):
        place.answer(0, version)
    assert place.heard() == [Received(0, 0)]
    assert place.links.wait(0.1) == []
    place.kill(0)
    place.links.send(0, [b"lost"])
    place.links.send(0, [b"lost"])
    until_opened(place, 0)
    place.answer(0, 5)
    assert place.links.wait(0.1) == []
    place.links.release(0)
    assert place.heard() == [Received(0, 5)]


@pytest.mark.parametrize(
    ("parameters", "encoding", "body"),
    [
        (ParametersInTurn(ALL[0]), 4, bytes(3)),
        (ParametersInTurn(ALL[0]), DENSE, bytes(396)),
        (kept(several=False), DENSE, bytes(396)),
        (kept("changed", several=False), 4, bytes(3)),  # no vector yet that it could change
        (kept("changed", several=False), DENSE, bytes(396)),
    ],
)
def test_an_answer_of_another_encoding_or_length_is_refused(
    make: Make, parameters: ReceivedParameters, encoding: int, body: bytes
) -> None:
    place = make(parameters, asks=True)
    head = header(Kind.PARAMETERS, 7, encoding=encoding, length=len(body))
    place.servers[0].sendall(head + body)
    with pytest.raises(WireError, match="expected 400004 in encoding 1"):
        place.heard()


@pytest.mark.parametrize("only_newest", [True, False])
def test_changes_of_any_length_are_put_together(make: Make, only_newest: bool) -> None:
    place = make(kept("changed", several=False, only_newest=only_newest), asks=only_newest)
    codec, rng = Codec(EncodingChoice(), LAYOUT.sizes), np.random.default_rng(1)
    expected = rng.normal(size=LAYOUT.total).astype(np.float32)
    whole = header(Kind.PARAMETERS, 0, encoding=DENSE, length=expected.nbytes) + expected.tobytes()
    before: dict[int, FloatVector] = {}
    for version, count in enumerate([None, 5, 20_000, 0, 1, 3000]):
        message = whole
        if count is not None:
            indices = np.sort(rng.choice(LAYOUT.total, count, replace=False)).astype(np.uint32)
            values = rng.normal(size=count).astype(np.float32)
            expected[indices] = values
            encoding, pieces = codec.encode(SparseUpdate(indices, values))
            body = b"".join(pieces)
            message = header(Kind.PARAMETERS, version, encoding=encoding, length=len(body)) + body
        if only_newest:
            place.links.send(0, [b"pull"], asks=True)
        _send_in_two(place.servers[0], message)
        assert place.heard() == [Received(0, version)]
        before[version] = expected.copy()
    for version in (5,) if only_newest else (3, 4, 5):
        assert place.put(version).tobytes() == before[version].tobytes()


def _send_in_two(connection: socket.socket, message: bytes) -> None:
    """Send a message but for its last byte, and that 0.05 s later."""
    connection.sendall(message[:-1])
    threading.Timer(0.05, connection.sendall, [message[-1:]]).start()


def test_changes_refer_to_what_a_restored_server_says_the_device_has(make: Make) -> None:
    base = np.arange(LAYOUT.total, dtype=np.float32)
    parameters = kept("changed", several=False, only_newest=True)
    place = make(parameters, asks=True)
    parameters.opened(0, Greeted(place.links.links[0].end.socket, goes_on=True, base=base.copy()))
    indices, values = np.array([7], np.uint32), np.array([-1], np.float32)
    encoding, pieces = Codec(EncodingChoice(), LAYOUT.sizes).encode(SparseUpdate(indices, values))
    body = b"".join(pieces)
    head = header(Kind.PARAMETERS, 3, encoding=encoding, length=len(body))
    place.servers[0].sendall(head + body)
    assert place.heard() == [Received(0, 3)]
    base[7] = -1
    assert place.put(3).tobytes() == base.tobytes()

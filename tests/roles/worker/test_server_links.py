"""A worker's connections to several servers, which are sockets of the test."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from testbed.roles.transport.sending import Pieces
from testbed.roles.worker.server_links import ServerLink, ServerLinks
from testbed.roles.worker.sliced_session import _expected
from testbed.training.slices import slices
from testbed.updates import Layout
from testbed.wire.encodings import DENSE
from testbed.wire.frames import Kind, header

CUT = slices(Layout(("a", "b"), (60_000, 40_001)), 2)


class Place:
    """A worker's links, and the servers' ends of them."""

    def __init__(self) -> None:
        self.servers = []
        links = []
        buffer = memoryview(bytearray(4 * CUT[1].size + 4096))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for one in CUT:
                mine = socket.create_connection(listener.getsockname())
                self.servers.append(listener.accept()[0])
                links.append(ServerLink(mine, "127.0.0.1", one, "full", buffer))
        self.links = ServerLinks(links)

    def answer(self, server: int, version: int) -> None:
        body = np.full(CUT[server].size, version + server / 4, np.float32).tobytes()
        self.servers[server].sendall(
            header(Kind.PARAMETERS, version, encoding=DENSE, length=len(body)) + body
        )

    def until_heard(self, seconds: float = 10.0) -> list[tuple[int, list[int]]]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if heard := self.links.turn(deadline - time.monotonic()):
                return [(self.links.links.index(link), list(came)) for link, came in heard]
        raise AssertionError("nothing was heard")


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    for one in (*made.servers, *(link.connection.socket for link in made.links.links)):
        one.close()


def test_slices_of_all_servers_make_one_vector(place: Place) -> None:
    place.answer(1, 3)
    assert place.until_heard() == [(1, [3])]
    place.answer(0, 5)
    assert place.until_heard() == [(0, [5])]
    parameters = np.zeros(100_001, np.float32)
    place.links.put_together(parameters)
    assert parameters[: CUT[0].size].tolist() == [5.0] * CUT[0].size
    assert parameters[CUT[0].size :].tolist() == [3.25] * CUT[1].size
    assert [link.version for link in place.links.links] == [5, 3]


def test_a_server_that_reads_nothing_delays_no_other(place: Place) -> None:
    large, small = bytes(32 << 20), b"push"
    began = time.monotonic()
    place.links.send([[large], [small]])
    assert time.monotonic() - began < 5
    assert place.links.links[0].connection.pending
    assert place.servers[1].recv(4) == small
    place.answer(1, 1)
    assert place.until_heard() == [(1, [1])]
    # When it reads at last, it gets everything.
    place.servers[0].setblocking(False)
    received = 0
    while received < len(large):
        place.links.turn(0.0)
        try:
            received += len(place.servers[0].recv(1 << 20))
        except BlockingIOError:
            continue
    assert not place.links.links[0].connection.pending


def test_an_answer_that_stalls_is_read_as_far_as_it_came(place: Place) -> None:
    body = np.ones(CUT[0].size, np.float32).tobytes()
    place.servers[0].sendall(
        header(Kind.PARAMETERS, 2, encoding=DENSE, length=len(body)) + body[:1000]
    )
    with pytest.raises(AssertionError):
        place.until_heard(3.5)
    place.servers[0].sendall(body[1000:])
    assert place.until_heard() == [(0, [2])]


def test_a_server_that_has_said_stop_keeps_its_slice_and_is_sent_to(place: Place) -> None:
    place.answer(0, 4)
    place.servers[0].sendall(header(Kind.STOP))
    place.servers[0].shutdown(socket.SHUT_WR)
    while not place.links.links[0].stopped:
        place.until_heard()
    assert place.links.going_on == [place.links.links[1]]
    assert place.links.links[0].parameters[0] == 4
    place.links.send([[b"late"], [b"push"]])
    assert place.servers[0].recv(4) == b"late"
    place.servers[0].close()
    for _ in range(3):  # that it has ended is no error any more
        place.links.send([[b"late"], [b"push"]])
        place.links.turn(0.05)
    place.servers[1].sendall(header(Kind.STOP))
    assert place.until_heard() == [(1, [])]
    assert place.links.all_stopped
    place.links.finish()


def test_a_connection_that_ends_without_stop_is_an_error(place: Place) -> None:
    place.servers[1].close()
    with pytest.raises(ConnectionError, match="the server closed the connection"):
        place.until_heard()


class Killed(Place):
    """Links to servers that are killed and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.links = ServerLinks(self.links.links, self._greet, again=b"again")

    def _greet(self, server: int) -> socket.socket:
        mine, self.servers[server] = socket.socketpair()
        return mine

    def kill(self, server: int) -> None:
        linger = struct.pack("ii", 1, 0)
        self.servers[server].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.servers[server].close()

    def close(self) -> None:
        for one in (*self.servers, *(link.connection.socket for link in self.links.links)):
            one.close()


@pytest.fixture
def killed() -> Iterator[Killed]:
    made = Killed()
    yield made
    made.close()


@pytest.mark.parametrize("noticed", ["receiving", "sending", "waiting"])
def test_a_server_that_was_killed_is_asked_again_and_the_others_notice_nothing(
    killed: Killed, noticed: str
) -> None:
    first, second = killed.links.links
    killed.answer(0, 7)
    killed.answer(1, 7)
    while not (first.fresh and second.fresh):
        killed.links.turn(1.0)
    first.fresh = second.fresh = False
    killed.kill(0)
    if noticed == "receiving":
        killed.links.turn(1.0)
    elif noticed == "sending":
        killed.links.send([[b"lost"], [b"push"]])
        assert killed.servers[1].recv(9) == b"push"
    else:
        # It waits for the other server, which does not answer before it asks this one again.
        threading.Timer(2.5, killed.answer, (1, 8)).start()
        killed.links.wait_for(second)
    assert (first.session, second.session) == (1, 0)
    assert killed.servers[0].recv(99) == b"again"
    assert set(first.parameters) == {7.0}  # what it sent before stays
    killed.answer(0, 3)
    killed.links.wait_for(first)
    assert (first.version, set(first.parameters)) == (3, {3.0})


def test_no_message_of_an_earlier_session_is_sent_and_none_that_was_read(killed: Killed) -> None:
    messages: list[Pieces] = [[b"to the first"], [b"to the second"]]
    before = [link.session for link in killed.links.links]
    assert _expected(messages, killed.links, before) == messages
    assert _expected(messages, killed.links, before, {0}) == [[], messages[1]]
    killed.kill(1)
    killed.links.turn(1.0)
    assert _expected(messages, killed.links, before) == [messages[0], []]

"""The evaluator's choice of versions that all servers send."""

import socket
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from testbed.roles.evaluation.slices import _read_next, _Source
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.frames import HEADER, Kind, header


class Server:
    """A server that sends what a test asks for."""

    on_return: Sequence[int] = ()
    """The versions that it sends when it was killed and is greeted again."""
    has_left = False

    def __init__(self, size: int, *, comes_back: bool = False) -> None:
        self.mine: socket.socket
        self.parameters = np.zeros(size, np.float32)
        self.source = _Source(self._greet, [as_bytes(self.parameters)], comes_back=comes_back)

    def _greet(self) -> socket.socket:
        if self.has_left:
            raise ConnectionRefusedError
        self.mine, theirs = socket.socketpair()
        for version in self.on_return:
            self.send([version])
        return theirs

    def send(self, versions: Sequence[int]) -> None:
        for version in versions:
            body = np.full_like(self.parameters, version).tobytes()
            self.mine.sendall(header(Kind.PARAMETERS, version, length=len(body)) + body)

    def finished(self) -> list[int]:
        """Return the versions that the evaluator has reported."""
        self.mine.setblocking(False)
        try:
            data = self.mine.recv(65536)
        except BlockingIOError:
            return []
        heads = [data[i : i + HEADER.size] for i in range(0, len(data), HEADER.size)]
        return [HEADER.unpack(head)[4] for head in heads]


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made = [Server(2), Server(1)]
    yield made
    for one in made:
        one.mine.close()
        one.source._connection.close()


def test_versions_that_another_server_leaves_out_are_passed_over(servers: list[Server]) -> None:
    servers[0].send([0, 10, 30])
    servers[1].send([0, 20, 30, 40])
    for one in servers:
        one.mine.sendall(header(Kind.STOP))
    sources = [one.source for one in servers]
    evaluated = []
    while _read_next(sources):
        evaluated.append([one.parameters.tolist() for one in servers])
        for source in sources:
            source.done()
    assert evaluated == [[[0, 0], [0]], [[30, 30], [30]]]
    # What is passed over is reported too: the server need not keep it.
    assert [one.finished() for one in servers] == [[0, 10, 30], [0, 20, 30, 40]]


def test_a_slice_of_another_length_is_refused(servers: list[Server]) -> None:
    servers[1].mine.sendall(header(Kind.PARAMETERS, 0, length=2) + b"xx")
    servers[0].send([0])
    with pytest.raises(WireError, match="parameters of 2 bytes, expected 4"):
        _read_next([one.source for one in servers])


def test_a_server_that_was_killed_is_greeted_again_and_its_slices_stay() -> None:
    killed, other = Server(2, comes_back=True), Server(1, comes_back=True)
    killed.send([0])
    killed.source.read()
    killed.on_return = (2, 4)
    killed.mine.close()  # after its slice of version 0 has come
    other.send([0, 2, 4])
    sources = [killed.source, other.source]
    for version in (0, 2, 4):
        assert _read_next(sources)
        assert [source.version for source in sources] == [version] * 2
        assert killed.parameters.tolist() == [version] * 2
        for source in sources:
            source.done()
    assert killed.finished() == [2, 4]
    for one in (killed, other):
        one.mine.close()
        one.source._connection.close()


def test_a_server_that_was_killed_and_has_left_since_needs_nothing_any_more() -> None:
    killed, other = Server(2, comes_back=True), Server(1, comes_back=True)
    killed.has_left = True
    killed.mine.close()
    other.send([4])
    other.mine.sendall(header(Kind.STOP))
    assert not _read_next([killed.source, other.source])
    assert other.finished() == [4]
    other.mine.close()
    for one in (killed, other):
        one.source._connection.close()


def test_a_server_that_is_gone_and_never_killed_is_an_error() -> None:
    gone = Server(2)
    gone.mine.close()
    with pytest.raises(ConnectionError):
        gone.source.read()
    gone.source._connection.close()

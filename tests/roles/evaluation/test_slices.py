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

    def __init__(self, size: int) -> None:
        self.mine, theirs = socket.socketpair()
        self.parameters = np.zeros(size, np.float32)
        self.source = _Source(theirs, as_bytes(self.parameters))

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

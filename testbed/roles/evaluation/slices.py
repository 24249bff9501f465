"""The evaluator of several servers, each of which sends its slice of every version to evaluate.

It holds at most one slice of each server: it reads no further one before all slices of a version are
there, so that a server that is ahead keeps its own queue. A version that one server has left out is
evaluated by none.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from testbed.channel import Channel
from testbed.learning.data.datasets import Dataset
from testbed.learning.learner import Learner
from testbed.messages.codec import send
from testbed.messages.reports import VersionEvaluated
from testbed.roles.transport.greeting import Identity, connect
from testbed.roles.transport.receiving import receive_exactly, receive_header
from testbed.telemetry.board import DeviceLine
from testbed.training.settings import Settings
from testbed.training.slices import Slice, slices_of
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.frames import Kind, header


class _Source:
    """A server that sends its slices, the oldest version first.

    It may be killed, and comes back: it is greeted again. A slice that it has sent is kept.
    """

    def __init__(
        self, greet: Callable[[], socket.socket], memory: Sequence[memoryview], *, comes_back: bool
    ) -> None:
        """Connect to the server.

        Args:
            greet: returns a connection over which the server has answered the greeting.
            memory: where the pieces of its slices belong.
            comes_back: True if it may be killed.
        """
        self._greet = greet
        self._connection = greet()
        self._memory = memory
        self._length = sum(map(len, memory))
        self._comes_back = comes_back
        self.version: int | None = None
        self.stopped = False

    def read(self) -> None:
        """Receive the next slice into its place, unless one is there, or note the STOP."""
        while not self.stopped and self.version is None:
            with self._greeting_again():
                self._read()

    @contextmanager
    def _greeting_again(self) -> Iterator[None]:
        try:
            yield
        except (ConnectionError, TimeoutError):
            if not self._comes_back:
                raise
            self._connection.close()
            try:
                self._connection = self._greet()
            except OSError:
                # It has left: it was killed just before its STOP, and needs nothing any more.
                self.stopped = True

    def _read(self) -> None:
        accepts = {Kind.PARAMETERS: self._length, Kind.STOP: 0}
        head = receive_header(self._connection, accepts)
        if head.kind is Kind.STOP:
            self.stopped = True
            return
        if head.length != self._length:
            raise WireError(f"parameters of {head.length} bytes, expected {self._length}")
        for piece in self._memory:
            receive_exactly(self._connection, piece)
        self.version = head.number

    def done(self) -> None:
        """Tell the server that nothing more is to come of the slice that it sent last."""
        assert self.version is not None
        with self._greeting_again():
            self._connection.sendall(header(Kind.FINISHED, self.version))
        self.version = None


def evaluate_slices(
    settings: Settings, dataset: Dataset, learner: Learner, report: Channel, line: DeviceLine
) -> None:
    """Evaluate the versions that several servers send, until all have said STOP."""
    images = dataset.test_images[: settings.data.evaluation_images]
    labels = dataset.test_labels[: settings.data.evaluation_images]
    with ExitStack() as opened:
        cut = slices_of(settings, learner.layout)
        sources = [
            _connected(settings, opened, index, one, learner) for index, one in enumerate(cut)
        ]
        connected = time.monotonic()
        while _read_next(sources):
            version = sources[0].version
            assert version is not None
            accuracy, loss, measured = learner.evaluate(images, labels)
            send(report, VersionEvaluated(version, accuracy, loss, connected, measured))
            line.look()
            for source in sources:
                source.done()
    line.done()


def _connected(
    settings: Settings, opened: ExitStack, index: int, one: Slice, learner: Learner
) -> _Source:
    def greet() -> socket.socket:
        greeted = connect(settings, Identity(settings.evaluator), one.size, server=index)
        return opened.enter_context(greeted.connection)

    memory = [as_bytes(learner.parameters[piece.of_all]) for piece in one.pieces]
    return _Source(greet, memory, comes_back=settings.faults.server_absence is not None)


def _read_next(sources: Sequence[_Source]) -> bool:
    """Receive the slices of the next version that all servers send; return False if there is none.

    Slices of versions that another server does not send are passed over.
    """
    while True:
        for source in sources:
            source.read()
        versions = [source.version for source in sources]
        if any(source.stopped and source.version is None for source in sources):
            for source in sources:
                if source.version is not None:
                    source.done()
            if all(source.stopped for source in sources):
                return False
            continue
        newest = max(version for version in versions if version is not None)
        behind = [source for source in sources if source.version != newest]
        if not behind:
            return True
        for source in behind:
            source.done()

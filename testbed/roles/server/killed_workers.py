"""Workers that the virtual clock has killed, and that may be on their way back."""

from collections.abc import Iterator

from testbed.roles.transport.connection import Connection
from testbed.wire.frames import Frame


class KilledWorkers:
    """The workers that are killed now, and their new connections.

    Attributes:
        incarnations: how often each worker was killed.
    """

    def __init__(self, workers: int) -> None:
        self.incarnations = [0] * workers
        self._connections: dict[int, Connection | None] = {}
        self._sizes: dict[int, list[int]] = {}

    def restore(self, killed: list[int], incarnations: list[int]) -> None:
        """Become as it was at a checkpoint; none of the workers is back."""
        self.incarnations = incarnations
        self._connections = dict.fromkeys(killed)

    def __contains__(self, worker: int) -> bool:
        """Return True if a worker is killed and has not returned to the run."""
        return worker in self._connections

    def __iter__(self) -> Iterator[int]:
        """Yield the killed workers."""
        return iter(self._connections)

    def is_earlier(self, worker: int, incarnation: int) -> bool:
        """Return True if a process is one that was killed, or is to be."""
        return worker in self and incarnation < self.incarnations[worker]

    def add(self, worker: int) -> None:
        """Add a worker that was killed."""
        self._connections[worker] = None
        self.incarnations[worker] += 1

    def greeted(self, worker: int, connection: Connection, size: int) -> None:
        """Keep the connection of a worker that is back, with a greeting of ``size`` bytes."""
        self._connections[worker] = connection
        self._sizes[worker] = [size]

    def heard(self, connection: Connection, frame: Frame) -> None:
        """Count a message that the clock has not come to yet; ignore one from before the kill."""
        worker = connection.device
        if worker is not None and connection is self._connections.get(worker):
            self._sizes[worker].append(frame.size)

    def messages(self, worker: int) -> int:
        """Return the number of messages that a worker has sent since it is back."""
        return len(self._sizes.get(worker, ()))

    def remove(self, worker: int) -> tuple[Connection | None, list[int]]:
        """Remove a worker that returns to the run; return its connection and its messages' bytes."""
        return self._connections.pop(worker), self._sizes.pop(worker)

"""The workers of a server that a clock drives: their messages, their deaths and their returns.

Workers compute as soon as they have parameters, and send when the clock has told them that their
computation is over. The server reads from a worker only when that worker's message is the next event.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from testbed.clock.stage import Arrived
from testbed.roles.server.ordered_reading import OrderedReading
from testbed.roles.server.restart import Restart
from testbed.roles.server.role_host import RoleHost
from testbed.roles.server.sent_vectors import SentVectors
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.roles.transport.greeting import Identity
from testbed.training import computation
from testbed.updates import FloatVector, as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE
from testbed.wire.frames import Kind, header

PATIENCE = 30.0
"""Seconds of waiting for one worker's message after which a warning is reported, again and again."""
RETURN_TIMEOUT = 600.0
"""Seconds that a killed worker has to greet, once it is due back.

The run's result depends on whether it returns, and a busy host must not decide that.
"""


@dataclass(frozen=True, slots=True)
class Returning:
    """The next process of a killed worker: its connection, and the bytes of its messages so far."""

    connection: Connection
    sizes: list[int]


class EmulatedWorkers:
    """The workers of one server, over their connections.

    Attributes:
        vectors: the vectors that workers were sent and may have to be sent again; None where no
            checkpoints are written.
        awaited: the workers that were connected before this server was restored, and are not back.
        away: the workers that are killed now, each with its next process once that has greeted.
        incarnations: how often each worker was killed.
        ended_legs: by worker, the messages that were received of it, each the end of a leg.
    """

    def __init__(
        self,
        host: RoleHost,
        *,
        asks: bool,
        wait: Callable[[], None],
        restart: Restart | None,
        remembers: bool,
    ) -> None:
        """Start with all workers well.

        Args:
            wait: handles what the kernel reports, after a short wait for it.
        """
        settings = host.settings
        self._report = host.report
        self._service = host.service
        self._connections = host.connections
        self._asks = asks
        self._wait = wait
        self._restart = restart
        # Workers' legs differ in their gradients only.
        self._legs = computation.legs(settings, 0)
        self.ended_legs: Counter[int] = Counter()
        self.reading = OrderedReading(host, host.connections.buffer)
        self.away: dict[int, Returning | None] = {}
        self.incarnations = [0] * settings.evaluator
        self.awaited: set[int] = set()
        self.vectors: SentVectors | None = None
        if remembers:
            overlaps = computation.overlaps(settings)
            self.vectors = SentVectors(changed=settings.pulls == "changed", overlaps=overlaps)

    def note(
        self,
        worker: int,
        version: int,
        vector: FloatVector,
        needed: Sequence[int] | None,
        *,
        dealt: int,
    ) -> None:
        """Keep a vector that a worker is sent, if checkpoints are written.

        Args:
            dealt: the number of the mini-batch that it is dealt, in the run's stream of them.
            needed: the versions that it has and still needs; None if it can send nothing more.
        """
        if self.vectors is None:
            return
        self.vectors.keep(worker, needed)
        if needed is not None:
            is_own = vector is not self._service.half.parameters
            self.vectors.sent(worker, version, vector, is_own=is_own, dealt=dealt)

    # -- workers that come back

    def greet(self, connection: Connection, identity: Identity, size: int) -> None:
        """Take the greeting of a worker that was killed, or that a restored server waits for.

        Raises:
            WireError: the worker has no place in this run any more.
        """
        number = identity.number
        if number in self.awaited and identity.incarnation == self.incarnations[number]:
            self._bring_back(connection, number)
        elif self._is_outdated(identity):
            self._connections.close(connection, None)
        elif number not in self.away:
            raise WireError(f"worker {number} comes when training has begun without it")
        else:
            self._connections.welcome(connection)
            self._connections.is_worker(connection, number)
            self.away[number] = Returning(connection, [size])

    def _is_outdated(self, identity: Identity) -> bool:
        """Return True for a process that is to be killed: its successor is what the clock waits for."""
        if self._restart and identity.kills < self._restart.kills:
            return True  # it came back after the checkpoint
        return self.is_earlier(identity)

    def is_earlier(self, identity: Identity) -> bool:
        """Return True if a process is one that was killed, or is to be."""
        number = identity.number
        return number in self.away and identity.incarnation < self.incarnations[number]

    def heard(self, worker: int, connection: Connection, size: int) -> None:
        """Count a message that the clock has not come to yet; ignore one from before the kill."""
        back = self.away.get(worker)
        if back is not None and back.connection is connection:
            back.sizes.append(size)

    def _bring_back(self, connection: Connection, number: int) -> None:
        """Bring a worker back to where it was at the checkpoint."""
        assert self.vectors is not None
        base, frames = self.vectors.again(number)
        body = b"" if base is None else as_bytes(base)
        size = len(self._service.half.parameters)
        connection.send([header(Kind.RESUME, size, length=len(body)), body])
        for version, vector, dealt in frames:
            body = as_bytes(vector)
            head = header(Kind.PARAMETERS, version, encoding=DENSE, count=dealt, length=len(body))
            connection.send([head, body])
        self._connections.is_worker(connection, number)
        self._connections.workers[number] = connection
        self.awaited.discard(number)
        self._connections.watch(connection)

    def await_all(self) -> None:
        """Wait until the workers that were there at the checkpoint are connected again."""
        deadline = time.monotonic() + RETURN_TIMEOUT
        while self.awaited and time.monotonic() < deadline:
            self._wait()
        for worker in sorted(self.awaited):
            text = f"it did not come back to the server within {RETURN_TIMEOUT:g} s"
            self._report.event("warning", text, worker)
            self._miss(worker)
        self.awaited.clear()

    def _miss(self, worker: int) -> None:
        """Report that the clock goes on without a worker, unless that changes no result any more."""
        if not self._service.finished:
            self._report.missed(worker)

    def is_read_now(self, connection: Connection) -> bool:
        """Return True if the clock waits for a connection, or has nothing to do with it."""
        return not self._connections.is_present(connection) or connection is self.reading.connection

    def close_what_does_not_end(self, stopped: Collection[int]) -> None:
        """Close connections over which no end will come, once training is over.

        A worker that is stopped or cut off does not receive STOP, and is not waited for. The end of a
        worker that was killed while it was cut off may never arrive.
        """
        for connection in list(self._connections.open):
            number = connection.device
            if number is None or connection is self._connections.evaluator.connection:
                continue
            gone = not self._connections.is_present(connection)
            if gone or number in stopped or number in self.away:
                # Bytes that it sent before its link really went down may still be unread.
                connection.read_out()
                self._connections.close(connection, None)
            else:
                self._connections.watch(connection)

    # -- what the clock says

    def send_to(self, worker: int, send: Callable[[Connection], int]) -> int:
        """Send something to a worker; return what ``send`` does, or 0 if the worker is gone."""
        connection = self._connections.workers.get(worker)
        if connection is None:
            return 0
        try:
            return send(connection)
        except BrokenConnectionError as error:
            self._connections.close(connection, f"{error}")
            return 0

    def receive(self, worker: int, keep: bool, *, alone: bool = False) -> Arrived | None:
        """Wait for the message of a worker that has finished, and return it; None if it is gone.

        Args:
            alone: True if only a question is to come, of which nothing is returned.
        """
        connection = self._connections.workers.get(worker)
        if connection is None:
            self._miss(worker)
            return None
        leg = self._legs[self.ended_legs[worker] % len(self._legs)]
        pushes, asks = leg.pushes and not alone, self._asks and (leg.asks or alone)
        self.reading.begin(worker, connection, keep=keep, pushes=pushes, asks=asks)
        self._connections.watch(connection)
        told = time.monotonic()
        while not self.reading.is_complete and connection in self._connections.open:
            self._wait()
            if time.monotonic() - told > PATIENCE:
                told += PATIENCE
                self._report.event("warning", f"nothing heard for {PATIENCE:g} s", worker)
        arrived = self.reading.end()
        if alone and connection in self._connections.open:
            self._connections.watch(connection)
            return None
        if connection not in self._connections.open or arrived is None:
            self._miss(worker)
            return None
        self.ended_legs[worker] += 1
        self._connections.watch(connection)
        return arrived

    def refuse(self, worker: int, reason: str) -> None:
        connection = self._connections.workers.get(worker)
        if connection is not None:
            self._connections.close(connection, reason)

    def killed(self, worker: int) -> None:
        """Ignore what the connection of a killed worker still brings, until it ends."""
        connection = self._connections.workers.pop(worker, None)
        self.reading.forget(worker)
        del self.ended_legs[worker]
        if self.vectors is not None:
            self.vectors.keep(worker, None)
        if connection is not None:
            self._connections.watch(connection)  # for its end
        self.away[worker] = None
        self.incarnations[worker] += 1

    def returned(self, worker: int) -> Sequence[int] | None:
        """Wait until a killed worker has greeted and, where workers ask, has asked.

        Returns:
            Bytes of each of these messages; None if the worker did not come back.
        """
        deadline = time.monotonic() + RETURN_TIMEOUT
        greeting = 1 + self._asks
        while (back := self.away[worker]) is None or len(back.sizes) < greeting:
            if time.monotonic() > deadline:
                text = f"it did not come back within {RETURN_TIMEOUT:g} s"
                self._report.event("warning", text, worker)
                self._miss(worker)
                return None
            self._wait()
        del self.away[worker]
        if back.connection not in self._connections.open:
            self._miss(worker)
            return None
        self._connections.workers[worker] = back.connection
        self._connections.watch(back.connection)
        return back.sizes

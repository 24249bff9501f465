"""The end of a server: STOP to all devices, and all that is still on its way is read.

So every byte that the kernel counted is accounted for. A worker that connects only now (it was killed,
and is back) receives STOP, too: its greeting was captured, and has to be read.
"""

import contextlib
import select
import socket
import time
from collections.abc import Callable, Sequence

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.messages.reports import ServerFinished, TrainingEnded, WorkerStillConnected
from testbed.roles.server.role_host import RoleHost
from testbed.roles.server.server_connections import REPORT_PERIOD, ServerConnections
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.frames import Kind

TOO_LATE = 1.0
"""Seconds that a connection without a greeting may stay open when training is over."""
DRAIN_TIMEOUT = 30.0
"""Seconds that workers have to close their connections after STOP."""

SUSPECTED_TIMEOUT = 5.0
"""Seconds that suspected workers have for that."""


def patience_of(host: RoleHost) -> Callable[[int], float]:
    """Return the patience of a server under the wall clock, for ``drain``."""
    suspected = host.service.is_suspected
    return lambda worker: SUSPECTED_TIMEOUT if suspected(worker) else DRAIN_TIMEOUT


def end(host: RoleHost) -> None:
    host.report.flush()
    host.report.send(TrainingEnded(host.service.half.version, host.report.server))
    host.say_stop(host.connections.workers.values())


def drain(
    host: RoleHost,
    patience: Callable[[int], float],
    *,
    others: bool = False,
    settled: Callable[[], None] = lambda: None,
) -> None:
    """Read until all connections are closed, and report the result.

    The evaluator first does its backlog.

    Args:
        patience: returns the seconds that a worker has to close its connection.
        others: True if workers may train on with other servers: their patience counts from when they
            were heard last.
        settled: called when the evaluator has reported all, and is to be told that training is over.
    """
    report, connections, half = host.report, host.connections, host.service.half
    stopped = time.monotonic()
    heard: dict[int, tuple[int, float]] = {}  # bytes received of workers, and since when
    # The evaluator may be late: it may still be starting, or do an evaluation for a server that was
    # killed, after which it connects to this one.
    while _is_any_open(connections) or connections.evaluator.is_missing:
        connections.evaluator.stop(settled)
        connections.poll(REPORT_PERIOD)
        now = time.monotonic()
        for connection in list(connections.open):
            if connections.is_unowned(connection) and (
                now - max(stopped, connection.opened) > TOO_LATE
            ):
                connections.close(connection, "training is over")
        for number, connection in list(connections.workers.items()):
            seconds = patience(number)
            if others and heard.get(number, (0, 0.0))[0] != connection.received_bytes:
                heard[number] = connection.received_bytes, now
            since = heard[number][1] if others else stopped
            if now - since > seconds:
                report.send(WorkerStillConnected(number))
                connections.close(connection, f"still connected {seconds:g} s after STOP")
        connections.evaluator.give_up(stopped)
    connections.stop_listening()
    late = half.late if isinstance(half, AggregatorHalf) else None
    if late is None:
        report.parameters(as_bytes(half.parameters))
    host.own_line.done()
    finished = ServerFinished(
        half.version, *host.service.ledger[:2], {}, report.server, *host.service.ledger[2:], late
    )
    report.send(finished)


def _is_any_open(connections: ServerConnections) -> bool:
    if not connections.open:
        connections.poll(0)
    return bool(connections.open)


# -- going back to a checkpoint, as another server is killed: connections are read until workers close
# them, as what the kernel has taken in is in the ledgers

DISCONNECT_TIMEOUT = 30.0
"""Seconds that workers have to close their connections; no end may come from one that was cut off."""
_LOOK = 0.2


def begin_to_end(host: RoleHost) -> Sequence[Connection]:
    """Accept no connection any more, and let all others see the end; return those to be read out."""
    connections, report = host.connections, host.report
    host.phase.over = True
    report.flush()
    connections.stop_listening()
    if connections.evaluator.connection is not None:  # it is in no ledger, and comes back by itself
        connections.close(connections.evaluator.connection, None)
    ending = list(connections.open)
    for connection in ending:
        connection.drop_pending()
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_WR)
    return ending


def await_ends(host: RoleHost, ending: Sequence[Connection]) -> None:
    """Read connections until their other ends have closed them, and report what came."""
    left = {connection.socket.fileno(): connection for connection in ending}
    ready = select.poll()
    for descriptor in left:
        ready.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + DISCONNECT_TIMEOUT
    while left and time.monotonic() < deadline:
        for descriptor, _ in ready.poll(1000 * _LOOK):
            if _has_ended(left[descriptor]):
                ready.unregister(descriptor)
                host.connections.close(left.pop(descriptor), None)
    for connection in left.values():
        connection.read_out()
        host.connections.close(connection, None)


def _has_ended(connection: Connection) -> bool:
    """Receive once; return True at the end of a connection."""
    try:
        for frame in connection.receive():
            if frame.kind is Kind.PUSH:
                connection.payload_bytes += len(frame.body)
    except (EOFError, WireError, BrokenConnectionError):
        return True
    return False

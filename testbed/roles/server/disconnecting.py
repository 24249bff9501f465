"""The end of a server's connections when the run goes back to a checkpoint, because another is killed.

The server sends nothing more, and reads until the workers have closed their connections: what the
kernel has taken in is in its ledgers. The workers then connect again.
"""

import contextlib
import select
import socket
import time
from collections.abc import Sequence

from testbed.roles.server.role_host import RoleHost
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.wire import WireError
from testbed.wire.frames import Kind

TIMEOUT = 30.0
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
    deadline = time.monotonic() + TIMEOUT
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

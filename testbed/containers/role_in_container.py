"""Run a role by its container's own Python: ``python -m testbed.containers.role_in_container``.

This is the container's end of ``testbed.containers.role_connections``. Libraries are the image's own,
and libraries and data are loaded here; everything else is as in a forked role.
"""

import os
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from pkgutil import resolve_name

from testbed.channel import Channel
from testbed.containers.fleet import INSIDE
from testbed.containers.role_connections import SOCKET
from testbed.messages.agent_reports import LibrariesLoaded, ProcessExited, RunFailed
from testbed.messages.codec import send
from testbed.messages.processes import (
    CONTAINER_REQUESTS,
    ContainerEvent,
    ContainerRequest,
    LoadRole,
    RunRole,
)


def main() -> int:
    """Connect to the agent, load, and run the role it sends; return the exit status."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"{INSIDE}/{SOCKET}")
    agent = Channel(connection)
    device = socket.gethostname()
    load, descriptors = _next(agent)
    assert isinstance(load, LoadRole)
    for standard in (1, 2):
        os.dup2(descriptors[0], standard)
    try:
        prepared = resolve_name(load.entry)(load.arguments)
    except Exception as error:
        traceback.print_exc()
        _report(agent, RunFailed(f"{type(error).__name__}: {error}"[:2000]))
        return 1
    _report(agent, LibrariesLoaded())
    shared: list[int] = []
    request, descriptors = _next(agent)
    while not isinstance(request, RunRole):
        shared += descriptors
        request, descriptors = _next(agent)
    report = Channel.from_descriptor(descriptors[0])
    threading.Thread(target=_end_with, args=(agent,), daemon=True).start()
    status = 70
    try:
        status = prepared(request.role, report, shared)
    except Exception:
        traceback.print_exc()
    _report(agent, ProcessExited(device, status))
    return status


def _report(agent: Channel, event: ContainerEvent) -> None:
    try:
        send(agent, event)
    except OSError:
        sys.exit(1)  # the agent has ended, so every role ends


def _next(agent: Channel) -> tuple[ContainerRequest, Sequence[int]]:
    """Wait for the agent's next request; return it and the descriptors that came with it."""
    received = agent.receive()
    if received is None:
        sys.exit(1)  # the agent has ended
    return CONTAINER_REQUESTS.decode(received), received.descriptors


def _end_with(agent: Channel) -> None:
    """End this process when the agent ends: nothing would read its reports."""
    while agent.receive() is not None:
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

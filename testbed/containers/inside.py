"""Run a role by its container's own Python: ``python -m testbed.containers.inside``.

This is the container's end of ``testbed.containers.gate``. Libraries are the image's own, and libraries
and data are loaded here; everything else is as in a forked role.
"""

import os
import socket
import sys
import threading
import traceback
from typing import Any

from testbed.channel import Channel, Message
from testbed.containers.fleet import INSIDE
from testbed.containers.gate import SOCKET
from testbed.nodes import entry_point


def main() -> int:
    """Connect to the agent, load, and run the role it sends; return the exit status."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"{INSIDE}/{SOCKET}")
    agent = Channel(connection)
    agent.send({"device": socket.gethostname()})
    first = _next(agent)
    for standard in (1, 2):
        os.dup2(first.descriptors[0], standard)
    load: dict[str, Any] = first.fields["load"]
    try:
        prepared = entry_point.resolve(load["entry"])(load["arguments"])
    except Exception as error:
        traceback.print_exc()
        _tell(agent, failed=f"{type(error).__name__}: {error}"[:2000])
        return 1
    _tell(agent, loaded=True)
    shared: list[int] = []
    while "role" not in (message := _next(agent)).fields:
        shared += message.descriptors
    role: dict[str, Any] = message.fields["role"]
    report = Channel.from_descriptor(message.descriptors[0])
    threading.Thread(target=_end_with, args=(agent,), daemon=True).start()
    status = 70
    try:
        status = prepared(role, report, shared)
    except Exception:
        traceback.print_exc()
    _tell(agent, exited=status)
    return status


def _tell(agent: Channel, **fields: Any) -> None:
    try:
        agent.send(fields)
    except OSError:
        sys.exit(1)  # the agent has ended, so every role ends


def _next(agent: Channel) -> Message:
    message = agent.receive()
    if message is None:
        sys.exit(1)  # the agent has ended
    return message


def _end_with(agent: Channel) -> None:
    """End this process when the agent ends: nothing would read its reports."""
    while agent.receive() is not None:
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

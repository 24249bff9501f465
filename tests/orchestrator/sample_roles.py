"""Roles without learning, for tests of the agent: what a node is and sees, told over its channel."""

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from testbed.channel import Channel
from testbed.nodes.fork_server import Role


def load(arguments: Mapping[str, Any]) -> Role:
    if "fail" in arguments:
        raise RuntimeError(arguments["fail"])
    return role


def role(arguments: Mapping[str, Any], report: Channel) -> int:
    what = arguments["what"]
    if what == "describe":
        report.send(
            {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "processes": sorted(int(n) for n in os.listdir("/proc") if n.isdigit()),
                "interfaces": sorted(name for _, name in socket.if_nameindex()),
                "open": len(os.listdir("/proc/self/fd")),
                "threads": threading.active_count(),
            }
        )
    elif what == "listen":
        with socket.create_server(("", 7000)) as server:
            report.send({"listening": True})
            while True:
                connection, peer = server.accept()
                with connection:
                    total = 0
                    while data := connection.recv(1 << 20):
                        total += len(data)
                    report.send({"from": peer[0], "bytes": total, "at": time.monotonic()})
    elif what == "send":
        with socket.create_connection((arguments["to"], 7000), timeout=10) as connection:
            connection.settimeout(None)
            connection.sendall(bytes(arguments["bytes"]))
    elif what == "tick":
        number = 0
        while True:
            number += 1
            report.send({"tick": number})
            time.sleep(0.01)
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)  # not delivered: a namespace's first process
        os._exit(arguments["status"])
    return 0

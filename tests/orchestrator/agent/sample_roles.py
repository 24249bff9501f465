"""Roles without learning, for tests of the agent: they describe their node, send, receive or count."""

import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from testbed.channel import Channel
from testbed.nodes.fork_server import Role
from testbed.planning.node_plan import ONE_THREAD


def load(arguments: Mapping[str, Any]) -> Role[Mapping[str, Any]]:
    if "fail" in arguments:
        raise RuntimeError(arguments["fail"])
    return role


def role(arguments: Mapping[str, Any], report: Channel) -> int:
    what = arguments["what"]
    if what in ENDLESS:
        ENDLESS[what](arguments, report)
    elif what == "describe":
        report.send(
            {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "processes": sorted(int(n) for n in os.listdir("/proc") if n.isdigit()),
                "interfaces": sorted(name for _, name in socket.if_nameindex()),
                "open": len(os.listdir("/proc/self/fd")),
                "has pytest": "pytest" in sys.modules,
                "threads": threading.active_count(),
                "pools": [one["num_threads"] for one in threadpool_info()],
                "product": float((np.ones((400, 400)) @ np.ones(400)).sum()),
                "tasks": len(os.listdir("/proc/self/task")),
                "environment": {name: os.environ.get(name) for name in ONE_THREAD},
            }
        )
    elif what == "look up":
        report.send(look_up(arguments["names"]))
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
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)  # not delivered to a namespace's first process
        os._exit(arguments["status"])
    return 0


def look_up(names: Sequence[str]) -> dict[str, Any]:
    """Return each name's address, the seconds of the longest look-up, and the bytes sent to itself."""
    found: dict[str, str | None] = {}
    longest = 0.0
    for name in names:
        began = time.monotonic()
        try:
            found[name] = str(socket.getaddrinfo(name, 7000)[0][4][0])
        except socket.gaierror:
            found[name] = None
        longest = max(longest, time.monotonic() - began)
    with (
        socket.create_server(("127.0.0.1", 7000)) as server,
        socket.create_connection(("localhost", 7000), timeout=10) as sender,
    ):
        threading.Thread(target=sender.sendall, args=(bytes(1_000_000),)).start()
        connection, _ = server.accept()
        total = 0
        while total < 1_000_000:
            total += len(connection.recv(1 << 20))
    own_name = Path("/etc/hostname").read_text()
    return {"found": found, "longest": longest, "to itself": total, "own name": own_name}


def tick(_: Mapping[str, Any], report: Channel) -> None:
    """Report a number that grows by one, every 10 ms."""
    for number in itertools.count(1):
        report.send({"tick": number})
        time.sleep(0.01)


def gather(_: Mapping[str, Any], report: Channel) -> None:
    """Report the bytes of each connection so far, whenever some arrive."""

    def read(connection: socket.socket, peer: tuple[str, int]) -> None:
        total = 0
        while data := connection.recv(1 << 20):
            total += len(data)
            report.send({"from": peer[0], "bytes": total})

    with socket.create_server(("", 7000)) as server:
        report.send({"listening": True})
        while True:
            threading.Thread(target=read, args=server.accept()).start()


def pump(arguments: Mapping[str, Any], _: Channel) -> None:
    """Send 100 bytes every 10 ms."""
    with socket.create_connection((arguments["to"], 7000)) as connection:
        while True:
            connection.sendall(bytes(100))
            time.sleep(0.01)


def spin(_: Mapping[str, Any], report: Channel) -> None:
    """Report every half second the share of a processor that this process gets."""
    while True:
        began, used = time.monotonic(), time.process_time()
        while time.monotonic() - began < 0.5:
            pass
        report.send({"used": (time.process_time() - used) / (time.monotonic() - began)})


ENDLESS = {"tick": tick, "gather": gather, "pump": pump, "spin": spin}

"""``testbed agent``: wait for orchestrators on other hosts, and start an agent for each of their runs.

What is sent over the connection is what an orchestrator sends an agent on its own host. An agent does
whatever it is asked to, as root: whoever knows the secret has this host.
"""

import contextlib
import json
import os
import select
import signal
import socket
import tempfile
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path

import psutil

from testbed.channel import Channel, ReceivedMessage, parsed
from testbed.code_digest import package_digest
from testbed.errors import HostError, SpecError
from testbed.messages.codec import encode
from testbed.messages.planned_nodes import PlannedNodes
from testbed.messages.requests import REQUESTS, LoadRoles
from testbed.network.underlay import own_addresses
from testbed.nodes import forked_process, linux, run_names
from testbed.orchestrator.agent import device_folders
from testbed.orchestrator.agent.process import ended, start
from testbed.orchestrator.hosts.device_entry import serve_entry
from testbed.orchestrator.hosts.host_paths import answer
from testbed.orchestrator.hosts.member import HostFacts, SharedThere, own_processors
from testbed.orchestrator.hosts.relay import CONTROL, FIRST_ORDERS, OUTPUT, FrameKind, Relay
from testbed.orchestrator.hosts.secured_connection import (
    SHORTEST_SECRET,
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
)
from testbed.roles.arguments import SharedArguments
from testbed.roles.pace import memory_of_paces
from testbed.version import VERSION

PATIENCE = 10.0
"""Seconds in which the other side must prove that it knows the secret."""
_MOST_AT_ONCE = 100
"""Connections at once, each of which takes a process: of runs, and of who has proven nothing yet."""
_TAKE_DOWN = 120.0
"""Seconds that an agent has to remove everything, when its orchestrator is gone."""


def facts() -> HostFacts:
    """Return what an orchestrator has to know of this host before it sends anything."""
    memory, is_root = psutil.virtual_memory().total, os.geteuid() == 0
    able = own_processors(), memory, is_root
    network = linux.namespace_id("net"), own_addresses()
    return HostFacts(VERSION, package_digest(), *able, *network)


def serve(
    address: str,
    port: int,
    secret: bytes,
    say: Callable[[str], None],
    *,
    until: Collection[int] = (),
) -> None:
    """Start an agent for each orchestrator that calls, until this process is ended.

    Args:
        say: tells the person who started this what happens.
        until: descriptors; with the end of one of them this ends, and the runs that are under way as
            well.

    Raises:
        SpecError: the address or port cannot be had.
        HostError: this is not root.
    """
    if os.geteuid() != 0:
        raise HostError("links between hosts need root: start `testbed agent` as root")
    try:
        listener = socket.create_server((address, port))
    except OSError as error:
        raise SpecError(f"cannot listen on {address}:{port}: {error.strerror}") from error
    package_digest()  # once, for all
    say(f"waiting on {address}:{listener.getsockname()[1]}")
    running: set[int] = set()
    watched = [listener.fileno(), *until]
    with listener:
        listener.settimeout(1.0)
        while True:
            ready, _, _ = select.select(watched, [], [], 1.0)
            if not {*until}.isdisjoint(ready):
                break
            if ready:
                with contextlib.suppress(TimeoutError):  # it has gone again
                    connection, (caller, _) = listener.accept()
                    with connection:
                        if len(running) < _MOST_AT_ONCE:
                            running.add(_fork(connection, caller, secret))
            for process in [*running]:
                if os.waitpid(process, os.WNOHANG)[0]:
                    running.discard(process)
    for process in running:
        os.kill(process, signal.SIGINT)
    for process in running:
        os.waitpid(process, 0)


def _fork(connection: socket.socket, caller: str, secret: bytes) -> int:
    parent = os.getpid()

    def body() -> int:
        # It removes what it has made before it ends, as after a Ctrl-C.
        linux.die_with_parent(signal.SIGINT, parent)
        try:
            _serve_run(connection, secret)
        except KeyboardInterrupt:
            return 130
        except ConnectionLostError as error:
            print(f"{caller}: {error}", flush=True)
            return 1
        return 0

    return forked_process.fork(run_names.HOST_AGENT, body, (0, 1, 2), (connection.fileno(),))


def _serve_run(connection: socket.socket, secret: bytes) -> None:
    """Start the agent of one run, and carry its channels until it has ended; or enter a device.

    Raises:
        ConnectionLostError: the connection has ended before, or the caller does not know the secret.
    """
    secured = SecuredConnection.proven(connection, secret, calls=False, seconds=PATIENCE)
    frames: list[HostFrame] = []
    while not frames:
        frames += secured.receive()
    frames.clear()
    secured.send(FrameKind.OPEN, CONTROL, json.dumps(asdict(facts())).encode())
    try:
        # What is wanted, and the first request; or the request for a command in a device.
        while len(frames) < 2 and not (frames and frames[0].kind == FrameKind.ENTER):
            for frame in secured.receive():
                if frame.kind == FrameKind.INQUIRY:
                    answer(secured, frame, secret)
                else:
                    frames.append(frame)
    except ConnectionLostError:
        return  # it only wanted to know that this host is there
    if frames[0].kind == FrameKind.ENTER:
        serve_entry(secured, frames, os.getppid())
        return
    wanted = json.loads(frames.pop(0).content)
    first = _first_request(frames.pop(0))
    with device_folders.elsewhere(first.nodes.get("written")) as folder:
        nodes: PlannedNodes = {**first.nodes, "folder": folder}
        _serve_agent(secured, wanted, LoadRoles(first.load, nodes), frames)


def _serve_agent(
    secured: SecuredConnection, wanted: SharedThere, first: LoadRoles, frames: list[HostFrame]
) -> None:
    """Start an agent with its first request, and carry its channels until it has ended.

    Args:
        frames: those that have come already.

    Raises:
        ConnectionLostError: the connection has ended before.
    """
    pairs = {
        number: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for number in wanted["orders"]
    }
    ends = {FIRST_ORDERS + number: ours for number, (ours, _) in pairs.items()}
    ends[CONTROL], control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends[OUTPUT], output = socket.socketpair()
    with contextlib.ExitStack() as shared:
        orders = {str(n): shared.enter_context(end).fileno() for n, (_, end) in pairs.items()}
        states = {
            number: shared.enter_context(tempfile.TemporaryFile()).fileno()
            for number in wanted["states"]
        }
        handed = [*orders.values(), *states.values()]
        of_all: SharedArguments = {"orders": orders}
        if states:
            of_all["states"] = [states.get(number, -1) for number in range(max(states) + 1)]
        if wanted["paces"]:
            of_all["paces"] = paces = memory_of_paces(wanted["paces"])
            shared.callback(os.close, paces)
            handed.append(paces)
        arguments = {**first.load["arguments"], **of_all}
        fields, raw = encode(LoadRoles({**first.load, "arguments": arguments}, first.nodes))
        Channel(ends[CONTROL].dup()).send(fields, raw)
        with output:
            agent = start(Channel(control), output.fileno(), handed)
    try:
        Relay(secured, ends, calls=False, pending=frames).run()
    finally:
        for end in ends.values():
            end.close()
        for what in ended(agent, _TAKE_DOWN):
            print(what, flush=True)


def _first_request(frame: HostFrame) -> LoadRoles:
    """Return the agent's first request."""
    request = REQUESTS.decode(ReceivedMessage(*parsed(frame.content)))
    if not isinstance(request, LoadRoles):
        raise ConnectionLostError("it has asked for something before what roles need")
    return request


def secret_in(file: Path | None) -> bytes:
    """Return the secret of a file, or without one that of ``TESTBED_SECRET``.

    Raises:
        SpecError: there is none, or it is too short.
    """
    try:
        text = file.read_text("utf-8") if file else os.environ.get("TESTBED_SECRET", "")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the secret in {file} cannot be read: {error}") from error
    secret = text.strip().encode()
    if len(secret) < SHORTEST_SECRET:
        where = file or "TESTBED_SECRET"
        raise SpecError(
            f"{where} must hold a secret of {SHORTEST_SECRET} characters or more, the same for all "
            "hosts: `openssl rand -hex 32` makes one"
        )
    return secret

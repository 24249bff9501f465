"""The gate and a role that a container's own Python starts, as two processes of this host."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.channel import MOST_DESCRIPTORS, Channel, readable
from testbed.containers.role_connections import RoleConnections
from testbed.messages.agent_reports import (
    LibrariesLoaded,
    NodeEvent,
    ProcessExited,
    ProcessStarted,
    RunFailed,
    WarningRaised,
)
from testbed.messages.requests import Load
from testbed.nodes.node_interface import Device

DEVICE = socket.gethostname()
MANY = MOST_DESCRIPTORS + 5
INSIDE = (
    "import sys\nimport testbed.containers.role_in_container as role\n"
    "role.INSIDE = sys.argv[1]; sys.exit(role.main())"
)
LOADER = """
def load(arguments):
    if "fail" in arguments:
        raise RuntimeError(arguments["fail"])

    def run(role, report, shared):
        report.send({"role": role, "shared": len(shared)})
        return role["status"]

    return run
"""


class Shared:
    """More descriptors than one message may carry."""

    def descriptors(self, role: Mapping[str, Any]) -> Sequence[int]:
        return [0] * MANY


class Place:
    """A gate, and the process of one container."""

    def __init__(self, folder: Path, attack: str | None = None, **arguments: str) -> None:
        (folder / "loader.py").write_text(LOADER)
        self.reports, self._theirs = Channel.pair()
        load: Load = {"entry": "loader:load", "arguments": arguments}
        self.gate = RoleConnections(folder, load, Shared().descriptors)
        self.gate.expect([Device(DEVICE, memory=2**30)])
        paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
        self.environment = os.environ | {"PYTHONPATH": paths}
        own = [INSIDE, str(folder)] if attack is None else [ATTACK, str(self.gate.path), attack]
        self._command = own
        self.start_process()

    def start_process(self) -> None:
        self.process = self.popen(*self._command)
        self.gate.watch(DEVICE, self.process.pid)

    def popen(self, code: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE)

    def start(self, **role: Any) -> None:
        self.gate.start(DEVICE, role, self._theirs.fileno())

    def events(self, count: int) -> list[NodeEvent]:
        found: list[NodeEvent] = []
        while len(found) < count:
            assert readable(self.gate.fileno(), 30), found
            found += self.gate.events()
        return found


ATTACK = """
import fcntl, os, socket, sys
from testbed.channel import Channel
from testbed.messages.codec import send
from testbed.messages.agent_reports import LibrariesLoaded, RunFailed

connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
agent = Channel(connection)
agent.receive()
what = sys.argv[2]
if what.startswith("loaded"):
    send(agent, LibrariesLoaded())
    send(agent, LibrariesLoaded())
if what.endswith("no JSON"):
    connection.send(b"\\0\\1{[x\\n")
elif what.endswith("object"):
    connection.send(b"[]\\n")
elif what.endswith("kind"):
    connection.send(b'{"kind": "container_connected", "device": "server"}\\n')
elif what.endswith("huge"):
    file = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 1 << 50)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, 15)
    socket.send_fds(connection, [b"\\0"], [file])
elif what.endswith("failed"):
    send(agent, RunFailed("x"))
elif what.endswith("other"):
    of_server = b'{"kind": "process_exited", "device": "server", "status": 0, "memory_limit": 5}'
    connection.send(of_server + b"\\n")
import time
time.sleep(100)
"""


@pytest.fixture
def places() -> Iterator[list[Place]]:
    made: list[Place] = []
    yield made
    for place in made:
        place.gate.close()
        place.process.kill()
        place.process.wait(20)
        place.reports.close()


def test_a_container_loads_and_runs_its_role_with_what_is_shared(
    places: list[Place], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    places.append(place)
    assert place.events(2) == [ProcessStarted(DEVICE, place.process.pid), LibrariesLoaded()]
    place.start(role="worker", status=3)
    report = place.reports.receive()
    assert report is not None
    assert report.fields == {"role": {"role": "worker", "status": 3}, "shared": MANY}
    assert place.events(1) == [ProcessExited(DEVICE, 3)]
    assert place.process.wait(20) == 3


def test_a_container_that_cannot_load_fails_the_run(places: list[Place], tmp_path: Path) -> None:
    place = Place(tmp_path, fail="no such thing")
    places.append(place)
    assert place.events(1) == [RunFailed(f"{DEVICE}: RuntimeError: no such thing")]


def test_a_container_that_is_killed_has_exited(places: list[Place], tmp_path: Path) -> None:
    place = Place(tmp_path)
    places.append(place)
    place.events(2)
    place.process.kill()
    assert place.events(1) == [ProcessExited(DEVICE, -signal.SIGKILL)]


def test_a_role_that_was_killed_comes_back_in_another_process(
    places: list[Place], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    places.append(place)
    place.events(2)
    for number in range(3):
        assert not place.gate.has_ended(DEVICE)
        place.start(role="worker", status=3, number=number)
        report = place.reports.receive()
        assert report is not None and report.fields["role"]["number"] == number
        assert report.fields["shared"] == MANY
        assert place.events(1) == [ProcessExited(DEVICE, 3)]
        assert place.gate.has_ended(DEVICE)
        place.process.wait(20)
        place.start_process()
        place.start(role="worker", status=4, number=-1)  # while it loads
        started, exited = place.events(2)
        assert started == ProcessStarted(DEVICE, place.process.pid)
        assert exited == ProcessExited(DEVICE, 4)
        assert place.reports.receive() is not None
        place.start_process()
        assert place.events(1) == [ProcessStarted(DEVICE, place.process.pid)]


def test_a_role_that_is_killed_while_it_comes_back_is_dead_and_no_failure_of_the_run(
    places: list[Place], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    places.append(place)
    place.events(2)
    for _ in range(2):
        before = place.process
        place.gate.kill(DEVICE)
        assert place.events(1) == [ProcessExited(DEVICE, -signal.SIGKILL)]
        place.start_process()
        place.start(role="worker", status=3)
        before.wait(20)
    place.gate.kill(DEVICE)
    assert place.events(1) == [ProcessExited(DEVICE, -signal.SIGKILL)]
    place.start_process()
    assert place.events(1) == [ProcessStarted(DEVICE, place.process.pid)]
    assert not readable(place.reports.fileno(), 0)  # the roles that never began are forgotten


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("no JSON", "a message that is no JSON"),
        ("no object", "a message that is no JSON object"),
        ("a kind", "a message of the unknown kind 'container_connected'"),
        ("huge", "a message of 1,125,899,906,842,624 bytes, and 65,536 are the most"),
        ("failed", "that it cannot load, after it had loaded"),
    ],
)
def test_what_is_no_message_kills_its_container_and_no_more(
    places: list[Place], tmp_path: Path, attack: str, why: str
) -> None:
    place = Place(tmp_path, f"loaded, {attack}")
    places.append(place)
    assert place.events(2) == [ProcessStarted(DEVICE, place.process.pid), LibrariesLoaded()]
    assert place.events(2) == [
        WarningRaised(f"{DEVICE} has sent {why}, and is killed"),
        ProcessExited(DEVICE, -signal.SIGKILL),
    ]
    assert place.process.wait(20) == -signal.SIGKILL
    assert len(list(place.gate.events())) == 0


def test_garbage_in_place_of_loading_fails_the_run_in_a_sentence(
    places: list[Place], tmp_path: Path
) -> None:
    place = Place(tmp_path, "no JSON")
    places.append(place)
    warning, failed = place.events(2)
    assert warning == WarningRaised(f"{DEVICE} has sent a message that is no JSON, and is killed")
    assert isinstance(failed, RunFailed) and "ended before its role began" in failed.reason


def test_a_container_ends_as_no_other(places: list[Place], tmp_path: Path) -> None:
    place = Place(tmp_path, "loaded, other")
    places.append(place)
    assert place.events(3)[2] == ProcessExited(DEVICE, 0)


OTHER = """
import socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
try:
    connection.send(b'{"kind": "container_connected", "device": "' + sys.argv[2].encode() + b'"}')
    print(len(connection.recv(7000)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""


def test_only_the_process_that_was_started_in_a_container_gets_its_secrets(
    places: list[Place], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    places.append(place)
    place.events(2)
    # Another process that sees the socket, and says the device's name.
    other = place.popen(OTHER, str(place.gate.path), DEVICE)
    while other.poll() is None:
        if readable(place.gate.fileno(), 0.1):
            assert list(place.gate.events()) == []
    assert other.stdout is not None
    assert other.stdout.read() == b"0\n"
    place.start(role="worker", status=3)
    report = place.reports.receive()
    assert report is not None and report.fields["shared"] == MANY


def test_a_stranger_that_connects_before_the_container_is_known_gets_nothing(
    tmp_path: Path,
) -> None:
    gate = RoleConnections(tmp_path, {"entry": "x:y", "arguments": {}}, Shared().descriptors)
    gate.expect([Device("server"), Device(DEVICE)])
    ours, theirs = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    for one in (ours, theirs):
        one.connect(str(gate.path))
        assert list(gate.events()) == []
    theirs.settimeout(5)
    assert theirs.recv(1) == b""  # one connection of a process
    gate.watch("server", os.getpid())
    ours.settimeout(5)
    assert ours.recv(7000).startswith(b'{"kind":"load_role"')
    gate.close()
    ours.close()
    theirs.close()

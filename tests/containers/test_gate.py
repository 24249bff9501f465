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
from testbed.containers.gate import Gate
from testbed.messages.events import (
    LibrariesLoaded,
    NodeEvent,
    ProcessExited,
    ProcessStarted,
    RunFailed,
)
from testbed.nodes.interface import Device

DEVICE = socket.gethostname()
MANY = MOST_DESCRIPTORS + 5
INSIDE = "import sys, testbed.containers.inside as i; i.INSIDE = sys.argv[1]; sys.exit(i.main())"
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

    def __init__(self, folder: Path, **arguments: str) -> None:
        (folder / "loader.py").write_text(LOADER)
        self.reports, self._theirs = Channel.pair()
        load = {"entry": "loader:load", "arguments": arguments}
        self.gate = Gate(folder, load, Shared())
        self.gate.expect([Device(DEVICE, memory=2**30)])
        paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
        self.process = subprocess.Popen(
            [sys.executable, "-c", INSIDE, str(folder)], env=os.environ | {"PYTHONPATH": paths}
        )
        self.gate.watch(DEVICE, self.process.pid)

    def start(self, **role: Any) -> None:
        self.gate.start(DEVICE, role, self._theirs.fileno())

    def events(self, count: int) -> list[NodeEvent]:
        found: list[NodeEvent] = []
        while len(found) < count:
            assert readable(self.gate.fileno(), 30), found
            found += self.gate.events()
        return found


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

"""Containers of a real engine: which files of the host they see, and whether memory ran out."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.containers.fleet import WAITING, Fleet
from testbed.errors import HostError
from testbed.nodes import joining_container, run_names
from testbed.nodes.node_interface import Device
from tests.containers.private_engine import TINY, PrivateEngine, private_engine

pytestmark = [pytest.mark.real, pytest.mark.exercises("Docker, roles started by the image")]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    with private_engine(tmp_path_factory.mktemp("engine")) as one:
        yield one


def test_a_folder_whose_path_has_a_colon_is_seen_inside(
    engine: PrivateEngine, tmp_path: Path
) -> None:
    """A colon separates the fields of an engine's bind strings."""
    folder = tmp_path / "data:of 2026,read-only"
    folder.mkdir()
    (folder / "labels").write_text("seven")
    trace = tmp_path / "12:30.csv"
    trace.write_text("0.5")
    mounts = {str(folder): "/data", str(trace): str(trace)}
    fleet = Fleet(engine.client, run_names.new(), TINY, {}, mounts=mounts)
    try:
        fleet.create([Device("worker-0")], lambda made: False)
        process = Path(f"/proc/{fleet['worker-0'].first}")
        assert (process / "root/data/labels").read_text() == "seven"
        assert (process / "root" / trace.relative_to("/")).read_text() == "0.5"
        lines = (process / "mountinfo").read_text().splitlines()
        (options,) = (line.split()[5] for line in lines if line.split()[4] == "/data")
        assert "ro" in options.split(",")
    finally:
        assert fleet.take_down() is None
    assert engine.containers() == []


EATING = """
import sys
from pathlib import Path
for group in sys.argv[1:]:
    Path(group).write_text("0")
held = [b"x" * 2**20 for _ in range(256)]
"""
LIMIT = 16 * 2**20


def eat(container: int) -> int:
    """Take 256 MiB in a container's control groups, and return the exit status."""
    groups = [str(path) for path in joining_container.control_groups(container)]
    return subprocess.run([sys.executable, "-c", EATING, *groups], check=False).returncode


def test_a_container_that_ran_out_of_memory_is_noticed(engine: PrivateEngine) -> None:
    fleet = Fleet(engine.client, run_names.new(), TINY, {})
    try:
        devices = [Device("worker-0", memory=LIMIT), Device("worker-1", memory=LIMIT), Device("w")]
        fleet.create(devices, lambda made: False)
        if eat(fleet["worker-0"].first) != -signal.SIGKILL:
            pytest.skip("this kernel does not limit the memory of control groups")
        # The container still runs, and its next role may run out of memory again.
        assert fleet.ran_out_of_memory("worker-0") == LIMIT
        assert fleet.ran_out_of_memory("worker-0") is None
        assert eat(fleet["worker-0"].first) == -signal.SIGKILL
        assert fleet.ran_out_of_memory("worker-0") == LIMIT
        assert fleet.ran_out_of_memory("worker-1") is None
        assert fleet.ran_out_of_memory("w") is None
    finally:
        assert fleet.take_down() is None


def test_what_was_started_in_a_container_is_started_again_as_long_as_that_is_there(
    engine: PrivateEngine,
) -> None:
    fleet = Fleet(engine.client, run_names.new(), TINY, {}, started=WAITING)
    try:
        fleet.create([Device("worker-0", memory=LIMIT)], lambda made: False)
        container = fleet["worker-0"]
        for process in (container.started, fleet.start_again("worker-0")):
            assert Path(f"/proc/{process}/ns/net").samefile(f"/proc/{container.first}/ns/net")
            status = Path(f"/proc/{process}/status").read_text()
            assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
            os.kill(process, signal.SIGKILL)
        os.kill(container.first, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while engine.containers():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert fleet.ran_out_of_memory("worker-0") is None  # it was killed
        with pytest.raises(HostError, match=r"worker-0 cannot be started again: the container of"):
            fleet.start_again("worker-0")
    finally:
        assert fleet.take_down() is None


@pytest.mark.parametrize("request_", ["exec_create", "exec_start"])
def test_a_container_that_ends_while_its_role_is_started_is_said_to_have_ended(
    engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch, request_: str
) -> None:
    """The engine's own words differ from moment to moment, as does the status of its refusal."""
    fleet = Fleet(engine.client, run_names.new(), TINY, {}, started=WAITING)
    send = getattr(fleet._api, request_)
    try:
        fleet.create([Device("worker-0")], lambda made: False)

        def send_as_it_dies(*arguments: Any, **options: Any) -> Any:
            os.kill(fleet["worker-0"].first, signal.SIGKILL)
            return send(*arguments, **options)

        monkeypatch.setattr(fleet._api, request_, send_as_it_dies)
        with pytest.raises(HostError, match="ended before its role began"):
            fleet.start_again("worker-0")
    finally:
        monkeypatch.undo()
        assert fleet.take_down() is None

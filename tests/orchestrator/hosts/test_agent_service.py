"""The agent of a host: it cleans its host, and outlives callers that ask for nonsense or lie."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from testbed.cli.host import clean
from testbed.doctor.findings import Leftover
from testbed.doctor.requirements import problems
from testbed.errors import HostError, TestbedError
from testbed.experiment.load import load
from testbed.nodes import forked_process, linux
from testbed.orchestrator.hosts.agent_service import serve
from testbed.orchestrator.hosts.hosts_file import HostsFile, OtherHost
from testbed.orchestrator.hosts.member import Member
from testbed.orchestrator.hosts.relay import CONTROL, FrameKind
from testbed.orchestrator.hosts.secured_connection import (
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
)
from testbed.orchestrator.hosts.spread import Spread, check
from testbed.planning.plan import plan
from tests.orchestrator.hosts.test_secured_connection import SECRET

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="agents need root"),
]
QUICKSTART = Path(__file__).parents[3] / "experiments" / "quickstart.yaml"
LEFT = """
import os, signal, sys
from testbed.nodes import control_group
from testbed.orchestrator.agent.device_folders import elsewhere
group = control_group.create()
with elsewhere(sys.argv[1]) as folder:
    print(folder, group.path if group else "", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def host() -> Iterator[OtherHost]:
    """An agent on this host, and where it waits."""
    with agent_waiting() as found:
        yield found


@contextlib.contextmanager
def agent_waiting(begin: Callable[[], None] = lambda: None) -> Iterator[OtherHost]:
    """Start an agent on this host, whose process first does something."""
    reading, writing = os.pipe()

    def body() -> None:
        begin()
        serve("127.0.0.1", 0, SECRET, lambda text: print(text, flush=True))

    agent = forked_process.fork("agent", body, (0, writing, 2))
    os.close(writing)
    with os.fdopen(reading) as said:
        port = int(said.readline().rpartition(":")[2])
        yield OtherHost("b", "127.0.0.1", port, "127.0.0.1")
        os.kill(agent, signal.SIGTERM)
        os.waitpid(agent, 0)


def content_of_file(host: OtherHost) -> dict[str, object]:
    return {
        "underlay": "127.0.0.2",
        "secret_file": "secret",
        "hosts": {"b": {"agent": f"127.0.0.1:{host.port}"}},
    }


def left_by_a_killed_run(place: Path) -> list[Path]:
    """Return the folder of a killed run's devices, and its control group, if it may have one."""
    made = subprocess.run(
        [sys.executable, "-c", LEFT, place], capture_output=True, text=True, check=False
    )
    assert made.returncode == -signal.SIGKILL, made.stderr
    return [*map(Path, made.stdout.split())]


def test_what_killed_runs_left_is_removed_on_each_host(
    host: OtherHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = left_by_a_killed_run(tmp_path)
    stuck = left_by_a_killed_run(tmp_path)[1:]
    for group in stuck:
        (group / "device" / "of somebody else").mkdir(parents=True)
    member = Member.called(host, SECRET)
    with member.connection.socket:
        found = {one.name: one.problem for one in member.cleaned()}
    assert [found[str(one)] for one in left] == [""] * len(left)
    assert not any(one.exists() for one in left)
    for group in stuck:
        assert found[str(group)] == "Device or resource busy"
        (group / "device" / "of somebody else").rmdir()
    clean(None)
    assert not any(one.exists() for one in stuck)
    capsys.readouterr()
    (tmp_path / "secret").write_bytes(SECRET)
    file = tmp_path / "hosts.yaml"
    file.write_text(json.dumps(content_of_file(host)))
    clean(str(file))
    nothing = "nothing to remove: no killed run left anything"
    assert capsys.readouterr().out == f"this host: {nothing}\nhost b: {nothing}\n"


def test_what_cannot_be_removed_here_is_no_end_of_the_cleaning_elsewhere(
    host: OtherHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = [Leftover("a group", "Permission denied: do it as root"), Leftover("a folder")]
    monkeypatch.setattr("testbed.doctor.cleaning.clean", lambda: iter(kept))
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "hosts.yaml").write_text(json.dumps(content_of_file(host)))
    with pytest.raises(
        HostError, match=r"^this host: not removed: a group \(Permission denied: do "
    ):
        clean(str(tmp_path / "hosts.yaml"))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "this host: removed a folder"
    assert said[1].startswith("host b: ")


def test_two_ends_of_a_link_in_one_network_are_refused_before_the_start(
    host: OtherHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_run = plan(load(QUICKSTART))[0]
    others = host, replace(host, name="c")
    file = HostsFile("127.0.0.1", others, made_secret=SECRET)
    for refused in (lambda: Spread.called(file, of_run), lambda: check(file, [of_run])):
        with pytest.raises(HostError, match=r"host b .*: its network is that of this host, and"):
            refused()
    monkeypatch.setattr("testbed.nodes.linux.namespace_id", lambda kind: "another host's")
    with pytest.raises(HostError, match=r"host c .*: its network is that of host b .*, and"):
        Spread.called(file, of_run)
    monkeypatch.undo()
    with Member.called(host, SECRET).connection.socket:  # it goes on
        pass


def test_an_address_of_the_underlay_must_be_the_hosts_own(host: OtherHost) -> None:
    """Under the virtual clock nothing else is sent over the underlay before the run begins."""
    of_run = plan(load(QUICKSTART))[0]
    for own, other, why in (
        (
            "10.99.0.77",
            host,
            "^--hosts: underlay: 10.99.0.77 is none of this host's addresses: 127",
        ),
        ("0.0.0.0", host, "^--hosts: underlay: 0.0.0.0 is none of this"),
        ("127.0.0.1", replace(host, underlay="10.99.0.77"), "^host b .*: 10.99.0.77, its address"),
    ):
        with pytest.raises(TestbedError, match=why):
            check(HostsFile(own, [other], made_secret=SECRET), [of_run])


def test_only_its_own_devices_need_room_on_this_host(
    host: OtherHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = plan(load(QUICKSTART))[0]
    workers = len(one.workers)
    available = int(one.memory - workers / 4 * one.memory_per_device)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
    monkeypatch.setattr("testbed.nodes.linux.namespace_id", lambda kind: "another host's")
    for number, fits in ((workers, True), (workers // 2, True), (1, False), (0, False)):
        place = {f"worker-0..{number - 1}": "b"} if number else {f"worker-{workers - 1}": "b"}
        file = HostsFile("127.0.0.1", [host], place, made_secret=SECRET)
        refused = pytest.raises(HostError, match=f"{workers - max(1, number)} workers need about ")
        with contextlib.nullcontext() if fits else refused:
            check(file, [one])
    for spread in (True, False):
        found = [str(error) for error in problems([one], tmp_path, spread=spread)]
        assert any("workers need about " in text for text in found) is not spread, found


def test_devices_need_room_on_their_own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    one = plan(load(QUICKSTART))[0]
    room = SimpleNamespace(
        total=2**40, available=int(one.shared_memory + 2 * one.memory_per_device)
    )

    def begin() -> None:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: room)

    with agent_waiting(begin) as host:
        monkeypatch.setattr("testbed.nodes.linux.namespace_id", lambda kind: "another host's")
        for last, fits in ((1, True), (2, False)):
            file = HostsFile("127.0.0.1", [host], {f"worker-0..{last}": "b"}, made_secret=SECRET)
            refused = pytest.raises(HostError, match=r"^host b .*: 3 workers need about .* GiB of")
            with contextlib.nullcontext() if fits else refused:
                check(file, [one])


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ("same", ""),
        ("other", "has other data than this host by the name of dataset {}: all devices have to"),
        ("nothing", "has no {}, which the run reads"),
    ],
)
def test_other_data_on_another_host_are_refused_before_the_start(
    there: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other host has another folder in the place of the data."""
    place, its = tmp_path / "data", tmp_path / "its"
    for folder, seed in ((place, 1), (its, 1 if there == "same" else 2)):
        folder.mkdir()
        if folder == place or there != "nothing":
            draw, labels = np.random.default_rng(seed), np.arange(320, dtype=np.uint8) % 10
            images = draw.integers(0, 256, (320, 8, 8), np.uint8)
            np.savez(
                folder / "own.npz",
                train_images=images[20:],
                train_labels=labels[20:],
                test_images=images[:20],
                test_labels=labels[:20],
            )
    dataset = str(place / "own.npz")
    one = plan(load(QUICKSTART, [f"dataset={dataset}", "model=mlp"]))[0]

    def begin() -> None:
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        linux.mount(str(its), str(place), "", linux.MS_BIND)

    with agent_waiting(begin) as host:
        monkeypatch.setattr("testbed.nodes.linux.namespace_id", lambda kind: "another host's")
        file = HostsFile("127.0.0.1", [host], made_secret=SECRET)
        text = re.escape(f"host b (127.0.0.1:{host.port}) {told.format(dataset)}")
        refused = pytest.raises(HostError, match=text)
        with refused if told else contextlib.nullcontext():
            check(file, [one])


@pytest.mark.parametrize(
    "asked",
    [b"", b"\xff", b"[" * 100_000, b"{}", b'{"device": "worker-0"}'],
    ids=["nothing", "no text", "brackets", "no fields", "few fields"],
)
def test_a_request_for_a_command_that_is_none_ends_its_connection_only(
    host: OtherHost, asked: bytes
) -> None:
    connection = Member.called(host, SECRET).connection
    with connection.socket:
        connection.send(FrameKind.ENTER, CONTROL, asked)
        with pytest.raises(ConnectionLostError):
            connection.receive()
    Member.called(host, SECRET).connection.socket.close()


def test_a_command_of_a_caller_that_has_proven_nothing_is_not_carried_out(
    host: OtherHost, tmp_path: Path
) -> None:
    request = {
        "run": "",
        "first_tunnel": 1,
        "device": "worker-0",
        "command": ["touch", str(tmp_path / "made")],
        "kind": None,
        "size": [0, 0],
        "shown": [],
    }
    content = json.dumps(request).encode()
    caller = socket.create_connection((host.address, host.port))
    with caller, pytest.raises(ConnectionLostError, match="secrets may differ"):
        connection = SecuredConnection.proven(caller, b"another secret..", calls=True, seconds=5)
        connection.send(FrameKind.ENTER, CONTROL, content)
    # With the proof it is understood, and there is no such run.
    connection = Member.called(host, SECRET).connection
    with connection.socket:
        connection.send(FrameKind.ENTER, CONTROL, content)
        frames: list[HostFrame] = []
        while not frames or frames[-1].kind != FrameKind.ENDED:
            frames += connection.receive()
    errors = b"".join(
        one.content for one in frames if (one.kind, one.channel) == (FrameKind.STREAM, 2)
    )
    assert b"has no devices now" in errors
    assert frames[-1].channel == 125
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("said", [b"{}", b"[1]", b"\xff", b'{"version": "9", "code": 1}'])
def test_an_agent_that_says_other_facts_runs_other_code(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def body() -> None:
            connection, _ = listening.accept()
            secured = SecuredConnection.proven(connection, SECRET, calls=False, seconds=10)
            secured.receive()
            secured.send(FrameKind.OPEN, CONTROL, said)
            connection.recv(1)  # until the caller has gone

        agent = forked_process.fork("agent", body, (0, 1, 2), (listening.fileno(),))
        other = OtherHost("b", "127.0.0.1", listening.getsockname()[1], "127.0.0.1")
        with pytest.raises(
            HostError, match=r"^host b \(127.0.0.1:\d+\): it runs other code, .*read$"
        ):
            Member.called(other, SECRET)
        assert os.waitpid(agent, 0)[1] == 0

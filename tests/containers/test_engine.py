"""The errors for Docker engines that cannot be used; with a real engine where one can be started."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from testbed.containers import engine
from testbed.doctor import containers, planned_containers
from testbed.doctor.attempts import try_in_child
from testbed.doctor.findings import Leftover
from testbed.errors import HostError
from testbed.experiment.load import load
from testbed.planning.plan import plan
from tests.containers.private_engine import PrivateEngine, missing


@contextmanager
def answering(path: Path, **answers: dict[str, Any]) -> Iterator[None]:
    """Answer as an engine would that is not available here (too old, rootless, out of order)."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    asked = connection.recv(4096).split()[1].decode().rpartition("/")[2]
                    known = asked in answers
                    body = json.dumps(answers.get(asked, {"message": "it broke"})).encode()
                    head = (
                        f"HTTP/1.1 {'200 OK' if known else '500 Error'}\r\n"
                        "Content-Type: application/json\r\n"
                        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
                    )
                    connection.sendall(head.encode() + body)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    return tmp_path / "docker.sock"


def test_a_missing_engine_is_reported(path: Path) -> None:
    with pytest.raises(
        HostError, match=r"no Docker engine answers .*No such file.*apt-get install"
    ):
        engine.connect()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(HostError, match=r"no Docker engine answers .*Connection refused"):
        engine.connect()


def test_an_engine_of_another_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
    with pytest.raises(HostError, match=r"tcp://127.0.0.1:2375 .* is not this host's"):
        engine.connect()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else for a moment")
def test_a_user_without_permission_is_told_to_use_sudo(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o660)
        for folder in path.parents[:3]:
            folder.chmod(0o755)

        def somebody_else() -> None:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            engine.connect()

        said = try_in_child(somebody_else)
    assert said.startswith("this user may not use the Docker engine's socket unix://")
    assert "run it with sudo" in said


def test_an_engine_that_is_too_old_is_refused(path: Path) -> None:
    too_old = pytest.raises(HostError, match=r"engine 19.03.15 is too old, 20.10 or newer")
    with answering(path, version={"ApiVersion": "1.40", "Version": "19.03.15"}), too_old:
        engine.connect()


@pytest.mark.skipif(os.geteuid() != 0, reason="that root is needed is said first")
def test_a_rootless_engine_is_refused(path: Path) -> None:
    answers: dict[str, dict[str, Any]] = {
        "version": {"ApiVersion": "1.41", "Version": "20.10.24"},
        "info": {"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]},
    }
    with answering(path, **answers):
        client = engine.connect()
        with pytest.raises(HostError, match=r"is rootless, .*use the system's engine"):
            engine.check(client, 5)
        client.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="that root is needed is said first")
def test_an_engine_that_is_out_of_order_is_told_in_a_sentence(path: Path, tmp_path: Path) -> None:
    """It says its version, and refuses all else."""
    refuses = "the Docker engine refuses the request: it broke"
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "{name: one, dataset: digits, model: mlp, algorithms: [asgd], training: {updates: 5}, "
        "devices: {workers: 2, runtime: docker}}"
    )
    with answering(path, version={"ApiVersion": "1.41", "Version": "20.10.24"}):
        assert [one.found for one in containers.findings()] == [refuses, refuses]
        assert [*containers.clean()] == [Leftover("containers", refuses)]
        with pytest.raises(HostError, match=f"^{refuses}$"):
            planned_containers.check(plan(load(spec)))


def test_what_the_library_itself_refuses_is_no_end_of_the_engine() -> None:
    refused = docker.errors.DockerException("invalid tag 'A:x': invalid reference format")
    with pytest.raises(HostError, match=r"^invalid tag 'A:x'"), engine.answering():
        raise refused


@pytest.mark.skipif(bool(missing()), reason=f"no Docker engine can be started: {missing()}")
def test_an_engine_whose_disk_is_full_is_refused(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real engine whose data are on a small file system."""
    private = PrivateEngine(tmp_path_factory.mktemp("engine"))
    monkeypatch.setenv("DOCKER_HOST", private.address)
    data = private.folder / "data"
    data.mkdir()
    size = f"size={engine.DISK_LEAST // 2}"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(data)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.decode().strip()}")
    try:
        private.start()
        try:
            with (
                closing(engine.connect()) as client,
                pytest.raises(HostError, match=r"disk is full: \S+ has \d+ MiB free, and 5 cont"),
            ):
                engine.check(client, 5)
        finally:
            private.end()
    finally:
        subprocess.run(["umount", str(data)], check=False)

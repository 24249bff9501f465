"""A Docker engine for the tests: its own data, socket and network; nothing of the host's is used.

It needs root and Debian's dockerd. Its image holds a program that reads and nothing else, which is all
that a container needs into which roles are forked.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

TINY = "tiny:1"
"""An image in which containers can only wait."""
PYTHON = "python:test"
"""An image with a shell and Python."""
LONGEST_SOCKET = 107
"""Bytes of the longest path that a socket may have (sun_path)."""


def missing() -> str:
    """Return why no engine can be started here; empty if one can."""
    if os.geteuid() != 0:
        return "an engine needs root"
    for program in ("dockerd", "containerd", "runc", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return ""


class PrivateEngine:
    """An engine that a test starts, and ends by the signal that it chooses."""

    def __init__(self, folder: Path) -> None:
        # containerd says nothing of a path that is too long, and dockerd only that it did not start.
        longest = f"{folder}/exec/containerd/containerd.sock.ttrpc"
        assert len(longest) <= LONGEST_SOCKET, f"{longest} is too long for a socket"
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self._process: subprocess.Popen[bytes]
        self._closed: list[docker.DockerClient] = []

    def start(self, patience: float = 180) -> None:
        """Start the engine, and wait at most ``patience`` seconds until it answers.

        dockerd gives up if its containerd has not answered after 15 seconds, which happens on a host
        that has much else to do; it is then started again.
        """
        self.folder.mkdir(exist_ok=True)
        self._launch()
        try:
            self._wait_for_answer(time.monotonic() + patience)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _wait_for_answer(self, deadline: float) -> None:
        while True:
            try:
                docker.DockerClient(base_url=self.address, version="1.41").ping()
            except (DockerException, OSError) as error:
                log = (self.folder / "log").read_text()
                assert time.monotonic() < deadline, f"{error}: {log[-2000:]}"
                if self._process.poll() is not None:
                    last_line = log.splitlines()[-1] if log else ""
                    if "unable to configure" in log:
                        pytest.skip(f"no engine can be started here: {last_line}")
                    assert "timeout waiting for containerd" in last_line, log[-2000:]
                    self._launch()
                time.sleep(0.1)
            else:
                return

    def _launch(self) -> None:
        command = (
            "ip link set lo up; exec dockerd --bridge=none --iptables=false "
            f"--data-root {self.folder}/data --exec-root {self.folder}/exec "
            f"--pidfile {self.folder}/pid --host {self.address}"
        )
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def client(self) -> docker.DockerClient:
        """A new connection to the engine."""
        self._closed.append(docker.DockerClient(base_url=self.address, version="1.41"))
        return self._closed[-1]

    def make_tiny(self) -> None:
        """Make the image ``TINY`` from the host's ``cat`` and the libraries that it needs."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            _add(tar, "/bin/cat", *_libraries("/bin/cat"))
        self._import(TINY, archive, "USER 10001:10001")

    def make_python(self) -> None:
        """Make the image ``PYTHON`` from this process's Python and the host's shell."""
        archive, prefix = io.BytesIO(), Path(sys.base_prefix)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        library = prefix / "lib" / version
        with tarfile.open(fileobj=archive, mode="w") as tar:
            modules = map(str, library.glob("lib-dynload/*.so"))
            programs = "/bin/sh", "/bin/cat", "/usr/bin/env", f"{prefix}/bin/{version}"
            _add(tar, *programs, *_libraries(*programs, *modules))
            tar.add(library, str(library).lstrip("/"), filter=_wanted_of_python)
            for name in ("usr/bin/python3", "bin/true"):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, f"{prefix}/bin/{version}"
                tar.addfile(link)
        self._import(PYTHON, archive, "ENV PATH=/usr/bin:/bin")

    def make(self, name: str, dockerfile: str, files: Mapping[str, str]) -> None:
        """Build an image in which nothing is run."""
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            for path, content in {"Dockerfile": dockerfile, **files}.items():
                member = tarfile.TarInfo(path)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content.encode()))
        context.seek(0)
        lines = self.client.api.build(
            fileobj=context,
            custom_context=True,
            tag=name,
            network_mode="none",
            rm=True,
            decode=True,
        )
        said = list(lines)
        assert not any("error" in line for line in said), said

    def _import(self, name: str, archive: io.BytesIO, *changes: str) -> None:
        repository, _, tag = name.partition(":")
        self.client.api.import_image_from_data(
            archive.getvalue(), repository=repository, tag=tag, changes=list(changes)
        )

    def containers(self) -> list[str]:
        """Return the names of all the engine's containers."""
        # Summaries only: one that is being removed cannot be inspected, and may have no name.
        found = self.client.api.containers(all=True)
        return sorted((one["Names"] or [one["Id"]])[0].lstrip("/") for one in found)

    def end(self, how: int = signal.SIGTERM) -> None:
        """End the engine by a signal, and its own containerd with it."""
        for client in self._closed:
            client.close()
        self._closed.clear()
        supervised = self.folder / "exec" / "containerd" / "containerd.pid"
        containerd = int(supervised.read_text()) if supervised.exists() else 0
        self._process.send_signal(how)
        self._process.wait(60)
        if how == signal.SIGKILL and containerd:
            os.kill(containerd, signal.SIGKILL)
            deadline = time.monotonic() + 10
            while Path(f"/proc/{containerd}").exists() and time.monotonic() < deadline:
                time.sleep(0.05)

    def unmount(self) -> None:
        """Unmount what a killed engine has left mounted below its folder."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split(" ")[4] for line in lines]
        for point in reversed([one for one in points if one.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", point], check=False)


def _libraries(*programs: str) -> set[str]:
    """Return the libraries of the host that programs need."""
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True)
    return {word for word in told.stdout.split() if word.startswith("/") and word[-1] != ":"}


def _add(tar: tarfile.TarFile, *files: str) -> None:
    """Add files of the host at their places."""
    for path in sorted(set(files)):
        tar.add(Path(path).resolve(), path.lstrip("/"))


def _wanted_of_python(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    left_out = {"test", "idlelib", "tkinter", "ensurepip", "lib2to3", "__pycache__", "pydoc_data"}
    left_out |= {"site-packages", "dist-packages"}
    path = Path(member.name)
    return None if left_out & set(path.parts) or path.suffix == ".a" else member


@contextmanager
def private_engine(folder: Path, patience: float = 180) -> Iterator[PrivateEngine]:
    """Start an engine that has the image ``TINY``; end it after the block."""
    if why := missing():
        pytest.skip(f"no Docker engine can be started: {why}")
    engine = PrivateEngine(folder)
    engine.start(patience)
    try:
        engine.make_tiny()
        yield engine
    finally:
        engine.end()
        engine.unmount()

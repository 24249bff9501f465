"""The containers of one run.

Every container has no network but the one that the testbed moves into it, a read-only root file
system, no capability and no way to gain one, the image's ordinary user, and labels that name the run.
It lives as long as the run's agent: its first process reads from a pipe that the kernel closes when
the agent dies, for any reason, and the engine removes a container whose first process has ended. So
nothing is left even if nothing cleans up, unless the engine itself has died: then it removes the
containers when it starts again.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.types import LogConfig, Mount

from testbed.channel import readable
from testbed.containers import engine, limits
from testbed.errors import HostError
from testbed.nodes import etc_files, linux
from testbed.nodes.node_interface import Device

RUN_LABEL = "io.testbed.run"
"""Label of every container: the run's name, from ``testbed.nodes.run_names``."""
MAKER_LABEL = "io.testbed.maker"
"""Label of every container: the pid namespace in which the process id in that name is valid."""
DEVICE_LABEL = "io.testbed.device"
PROGRAM_LABEL = "io.testbed.program"
"""Label of a container that runs a program beside a device, besides the device's labels."""
FOLDERS = Path("/run")
"""The folder in which runs make theirs: a file system that the engine sees, too."""
INSIDE = "/run/testbed"
"""The run's folder, as its containers see it."""
LIFELINE = "lifeline"
TAKE_DOWN_TIMEOUT = 60.0
"""Seconds that the engine has to remove a run's containers."""
FREEZE_TIMEOUT = 20.0
"""Seconds that the engine has to freeze a container."""
STARTING_TIMEOUT = 2.0
"""Seconds in which a container that was created is started, or is not any more."""
WAITING = ["/bin/cat", f"{INSIDE}/{LIFELINE}"]
"""A first process that waits for the run's end, for any image."""
_REAPS = f"env --ignore-signal=CHLD cat {INSIDE}/{LIFELINE}"
REAPING = [
    "/bin/sh",
    "-c",
    f"env --ignore-signal=CHLD true && exec {_REAPS}; exec {' '.join(WAITING)}",
]
"""A first process that waits for the run's end, too, and where possible clears away what has ended.

It becomes the parent of what programs leave in the background. The kernel clears that away for a
parent that ignores SIGCHLD, and of the programs ``env`` only that of coreutils can have it ignored.
"""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Container:
    """One container, running.

    Attributes:
        id: the engine's id of it.
        first: id of its first process in the host's /proc.
        network: descriptor of its network namespace.
        started: id of the process that was started in it, beside its first one; 0 if none was.
    """

    id: str
    first: int
    network: int
    started: int = 0


class Fleet:
    """The containers of a run, which it makes, freezes and removes.

    Attributes:
        folder: the run's folder, which its containers see as ``INSIDE``.
    """

    def __init__(
        self,
        client: docker.DockerClient,
        run: str,
        image: str,
        files: Mapping[str, str],
        *,
        first: Sequence[str] = WAITING,
        started: Sequence[str] = (),
        mounts: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Make the run's folder; no container yet.

        Args:
            image: id of the image.
            files: contents of the files in /etc that the containers share, by their names there.
            first: the command of the containers' first process, which waits for the run's end.
            started: the command of a process that is started beside it; none if there is no such.
            mounts: paths of the host, with their paths inside, read-only.
            environment: environment variables of both.
        """
        self._api = client.api
        self.run = run
        self._image = image
        self._first, self._started = list(first), list(started)
        self._environment = dict(environment or {})
        self._containers: dict[str, Container] = {}
        self._limited: dict[str, int] = {}
        self._out_of_memory: dict[str, int] = {}
        private = FOLDERS / run
        private.mkdir(mode=0o700)  # other users of the host must not enter
        self.folder = private / "shared"
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self._mounts = {str(self.folder): INSIDE} | dict(mounts or {})
        shared = etc_files.write(private, files)
        self._shared = {str(path): place for place, path in shared.items()}
        self._mounts |= self._shared
        self._names = private / "names"
        self._names.mkdir()
        os.mkfifo(self.folder / LIFELINE)
        (self.folder / LIFELINE).chmod(0o444)
        # Opened for reading, too, so that opening does not wait for a reader.
        self._lifeline = os.open(self.folder / LIFELINE, os.O_RDWR | os.O_CLOEXEC)

    def __contains__(self, device: str) -> bool:
        return device in self._containers

    def __getitem__(self, device: str) -> Container:
        return self._containers[device]

    def name_files(self, device: str) -> dict[str, str]:
        """Return the files by which a device finds names, with their places inside."""
        own = self._names / device
        return self._shared | {str(own / name): f"/etc/{name}" for name in etc_files.own(device)}

    def name(self, device: str) -> str:
        """Return the name of a device's container."""
        return f"{self.run}-{device}"

    def labels(self, device: str) -> dict[str, str]:
        """Return the labels of a device's container."""
        return {RUN_LABEL: self.run, DEVICE_LABEL: device, MAKER_LABEL: linux.namespace_id("pid")}

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        """Create and start a container for each device, several at a time.

        Args:
            abandoned: called now and then with the number of containers so far; True to give up.

        Raises:
            HostError: the engine refuses, or does not answer.
        """
        self._limited = {
            device.name: device.memory for device in devices if device.memory is not None
        }
        with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
            pending: dict[Future[Container], str] = {
                pool.submit(self._create, device): device.name for device in devices
            }
            try:
                while pending:
                    done, _ = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._containers[pending.pop(future)] = future.result()
                    if abandoned(len(self._containers)):
                        break
            except (DockerException, requests.RequestException, OSError) as error:
                raise HostError(
                    f"a container could not be started: {engine.explain(error)}"
                ) from error
            finally:
                for future in pending:
                    future.cancel()

    def _create(self, device: Device) -> Container:
        (self._names / device.name).mkdir()
        etc_files.write(self._names / device.name, etc_files.own(device.name))
        mounts = self._mounts | self.name_files(device.name)
        host = self._api.create_host_config(
            network_mode="none",
            read_only=True,
            tmpfs={"/tmp": "size=64m,mode=1777"},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            auto_remove=True,
            pids_limit=256,
            # Not as bind strings, which a colon in a path would break.
            mounts=[
                Mount(inside, path, type="bind", read_only=True) for path, inside in mounts.items()
            ],
            log_config=LogConfig(type="none"),
            mem_limit=device.memory,
            memswap_limit=device.memory,
            nano_cpus=round(1e9 * (device.cpus or 0)),  # 0 is no limit
        )
        made = self._api.create_container(
            self._image,
            self._first,
            entrypoint=[],
            name=self.name(device.name),
            hostname=device.name,
            environment=self._environment,
            labels=self.labels(device.name),
            # Without this the engine sets up an empty network, which is half of the cost of a start.
            network_disabled=True,
            host_config=host,
        )
        container = str(made["Id"])
        self._api.start(container)
        first = int(self._api.inspect_container(container)["State"]["Pid"])
        if not first:
            raise ProcessLookupError(f"the container of {device.name} ended at once")
        network = os.open(f"/proc/{first}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        started = self._start(device.name, container, first) if self._started else 0
        return Container(container, first, network, started)

    def start_again(self, device: str) -> int:
        """Start in a container what was started there before, and has ended; return its process id.

        Raises:
            HostError: the engine refuses, or does not answer.
        """
        try:
            own = self._containers[device]
            return self._start(device, own.id, own.first)
        except ProcessLookupError as error:
            raise HostError(f"{device} cannot be started again: {error}") from error
        except (DockerException, requests.RequestException, OSError) as error:
            raise HostError(engine.explain(error)) from error

    def _start(self, device: str, container: str, first: int) -> int:
        """Start the process beside a container's first one; return its id.

        Raises:
            ProcessLookupError: the container has ended.
            DockerException: the engine refuses.
        """
        try:
            made = self._api.exec_create(container, self._started)
            self._api.exec_start(made["Id"], detach=True)
            process = int(self._api.exec_inspect(made["Id"])["Pid"])
        except APIError:  # of a container that ends it says many things
            if not _ends(first):
                raise
            process = 0
        if not process:
            raise ProcessLookupError(f"the container of {device} ended before its role began")
        return process

    def freeze(self, device: str) -> None:
        """Pause a container."""
        self._pause(self._containers[device].id)

    def _pause(self, container: str) -> None:
        """Pause a container.

        On a busy host the engine gives up while processes are still being frozen; on another request
        it finds them frozen.
        """
        deadline = time.monotonic() + FREEZE_TIMEOUT
        while True:
            try:
                _request(self._api.pause, container)
                return
            except APIError as error:
                if "unable to freeze" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def thaw(self, device: str) -> None:
        """Unpause a container; one that is not paused just goes on."""
        with contextlib.suppress(APIError):
            _request(self._api.unpause, self._containers[device].id)

    def ran_out_of_memory(self, device: str) -> int | None:
        """Find out if the kernel killed a process of a device for using too much memory.

        Returns:
            The bytes that the device may use, if the kernel has killed a process for using more since
            the last call; else None.
        """
        limit = self._limited.get(device)
        if limit is None:
            return None
        known = self._out_of_memory.get(device, 0)
        try:
            self._out_of_memory[device] = found = limits.memory_kills(
                self._containers[device].first
            )
        except OSError:  # the container itself has ended, which was somebody's wish
            return None
        return limit if found > known else None

    # -- programs beside a device

    def freeze_programs(self, device: str) -> None:
        """Pause the containers of a device's programs; the device, which starts them, is paused.

        One that the engine was about to start when the device was paused is waited for.
        """
        deadline = time.monotonic() + STARTING_TIMEOUT
        while True:
            states = {one["Id"]: one["State"] for one in self._programs(device)}
            for container, state in states.items():
                if state == "running":
                    with contextlib.suppress(APIError):  # it has just ended
                        self._pause(container)
            if not {"created", "running"} & set(states.values()) or time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def thaw_programs(self, device: str) -> None:
        """Unpause the containers of a device's programs."""
        for one in self._programs(device):
            if one["State"] == "paused":
                with contextlib.suppress(APIError):
                    _request(self._api.unpause, one["Id"])

    def remove_programs(self, device: str) -> None:
        """Kill and remove the containers of a device's programs."""
        for one in self._programs(device):
            with contextlib.suppress(APIError):  # the engine is removing it already
                _request(partial(self._api.remove_container, force=True, v=True), one["Id"])

    def limit_programs(self, device: str, cpus: float | None) -> None:
        """Limit the processors of each program that runs on a device; None for all.

        Raises:
            HostError: they cannot be limited.
        """
        for one in self._programs(device):
            with contextlib.suppress(APIError):
                state = _request(self._api.inspect_container, one["Id"])["State"]
                if state["Pid"]:
                    limits.limit_processors(int(state["Pid"]), cpus)

    def _programs(self, device: str) -> list[dict[str, Any]]:
        own = [f"{name}={value}" for name, value in self.labels(device).items()]
        wanted = {"label": [*own, PROGRAM_LABEL]}
        found: list[dict[str, Any]] = _request(
            lambda _: self._api.containers(all=True, filters=wanted), ""
        )
        return found

    def take_down(self) -> str | None:
        """End every container and wait until the engine has removed it.

        Returns:
            A message on what could not be removed and what to do; None if nothing is left.
        """
        os.close(self._lifeline)
        try:
            left = self._remove()
        except (DockerException, requests.RequestException, OSError) as error:
            return engine.explain(error)
        shutil.rmtree(FOLDERS / self.run, ignore_errors=True)
        return f"{left} containers could not be removed: run `testbed clean`" if left else None

    def _remove(self) -> int:
        """Wait for the engine to remove them, then remove them by force; return how many are left."""
        begun = time.monotonic()
        left = self._left()
        while left and time.monotonic() - begun < TAKE_DOWN_TIMEOUT:
            if time.monotonic() - begun > TAKE_DOWN_TIMEOUT / 4:
                for container in left:
                    with contextlib.suppress(NotFound, APIError):
                        self._api.remove_container(container["Id"], force=True)
            time.sleep(0.1)
            left = self._left()
        return len(left)

    def _left(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._api.containers(
            all=True, filters={"label": f"{RUN_LABEL}={self.run}"}
        )
        # A paused container does not notice that its lifeline is closed; one that was only created
        # has none yet.
        for container in found:
            with contextlib.suppress(APIError):
                if container["State"] == "paused":
                    self._api.unpause(container["Id"])
                elif container["State"] == "created":
                    self._api.remove_container(container["Id"], force=True)
        return found


def _ends(process: int) -> bool:
    """Return True if a process has ended, or does so at once."""
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return readable(watched, 1.0)
    finally:
        os.close(watched)


def _request(send: Callable[[str], T], container: str) -> T:
    """Send the engine a request about a container; return its answer.

    Raises:
        APIError: it refuses.
        HostError: it does not answer.
    """
    try:
        return send(container)
    except APIError:
        raise
    except (DockerException, requests.RequestException, OSError) as error:
        raise HostError(engine.explain(error)) from error

"""Find the Docker engine, and explain its errors in one sentence.

The engine must be this host's, because the testbed moves network interfaces into its containers and
its processes enter their namespaces. It must be rootful, because a rootless engine's containers are in
namespaces of another user, where this host's root has its links but the engine has no control groups.
"""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import requests
from docker.errors import APIError, DockerException

from testbed.errors import HostError

OLDEST_API = (1, 41)
"""The oldest version of the API that is enough: engine 20.10's."""
CONNECTIONS = 32
PATIENCE = 120
"""Seconds that a request may take: an engine that starts many containers is slow to answer."""
DISK_PER_CONTAINER = 2**20
"""Bytes to expect per container in the engine's data directory; its layer holds a few empty files."""
DISK_LEAST = 64 * 2**20

_WITHOUT = "run without it (--set devices.runtime=namespaces)"
_FREE_SPACE = "free some space (docker system prune)"


def address() -> str:
    """Return the engine's address: $DOCKER_HOST, or Docker's own socket."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def connect() -> docker.DockerClient:
    """Connect to this host's engine.

    Raises:
        HostError: there is no usable engine.
    """
    where = address()
    if not where.startswith("unix://"):
        raise HostError(
            f"the Docker engine at {where} (DOCKER_HOST) is not this host's, and the testbed moves "
            f"interfaces into its containers: name a local socket, unix://…, or {_WITHOUT}"
        )
    try:
        client = docker.DockerClient(
            base_url=where,
            version=".".join(map(str, OLDEST_API)),
            timeout=PATIENCE,
            max_pool_size=CONNECTIONS,
        )
        version = client.version()
    except (DockerException, requests.RequestException, OSError) as error:
        raise HostError(_unreachable(where, error)) from error
    api_version = tuple(map(int, re.findall(r"\d+", str(version.get("ApiVersion", "0")))[:2]))
    if api_version < OLDEST_API:
        raise HostError(_too_old(str(version.get("Version", "?"))))
    return client


def check(client: docker.DockerClient, containers: int) -> None:
    """Check that the engine can carry a run.

    Raises:
        HostError: it cannot.
    """
    if os.geteuid() != 0:
        raise HostError(
            "runtime docker needs root, because it moves network interfaces into containers: run it "
            "with sudo, or as this user with --set devices.runtime=namespaces"
        )
    info = client.info()
    if any("rootless" in option for option in info.get("SecurityOptions") or ()):
        raise HostError(
            f"the Docker engine at {address()} is rootless, so that the testbed cannot move interfaces "
            f"into its containers: use the system's engine, or {_WITHOUT}"
        )
    root = Path(info.get("DockerRootDir", "/"))
    if root.exists():
        free = shutil.disk_usage(root).free
        needed = DISK_LEAST + containers * DISK_PER_CONTAINER
        if free < needed:
            raise HostError(
                f"the Docker engine's disk is full: {root} has {free / 2**20:.0f} MiB free, and "
                f"{containers} containers may take {needed / 2**20:.0f} MiB: {_FREE_SPACE}"
            )


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Raise what goes wrong with requests to the engine as a ``HostError``."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        raise HostError(explain(error)) from error


def explain(error: Exception) -> str:
    """Return the message for an error of a request to the engine."""
    if isinstance(error, APIError):
        text = str(error.explanation or error)
        if "no space left" in text:
            return f"the Docker engine's disk is full ({text}): {_FREE_SPACE}"
        return f"the Docker engine refuses the request: {text}"
    if isinstance(error, DockerException) and _errno(error) is None:
        return str(error)  # of the library, which has not asked the engine
    return lost(_cause(error))


def lost(why: str) -> str:
    """Return the message that the engine, which has answered before, answers no more."""
    return (
        f"the Docker engine at {address()} no longer answers ({why}): see its log "
        "(journalctl -u docker), restart it, and run `testbed clean`"
    )


def _unreachable(where: str, error: Exception) -> str:
    number = _errno(error)
    text = str(error)
    if number in (errno.EACCES, errno.EPERM):
        return (
            f"this user may not use the Docker engine's socket {where}: run it with sudo (the group "
            f"docker is not enough, because interfaces are moved), or {_WITHOUT}"
        )
    if "is too new" in text or "client version" in text:
        found = re.search(r"Maximum supported API version is (\S+?)[\s\"')]", text)
        return _too_old(f"with API {found[1]}" if found else text)
    return (
        f"no Docker engine answers at {where} ({_cause(error)}): start it (systemctl start docker), "
        f"install it (apt-get install docker.io), or {_WITHOUT}"
    )


def _too_old(version: str) -> str:
    return (
        f"the Docker engine {version} is too old, 20.10 or newer is needed: upgrade it "
        f"(apt-get install docker.io), or {_WITHOUT}"
    )


def _errno(error: BaseException) -> int | None:
    """Return the error number that caused a library's error, from its arguments or its causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno:
            return int(seen.errno)
        for part in seen.args:
            if isinstance(part, BaseException) and (number := _errno(part)):
                return number
        seen = seen.__cause__ or seen.__context__
    return None


def _cause(error: Exception) -> str:
    number = _errno(error)
    return os.strerror(number) if number else f"{type(error).__name__}: {error}"[:200]

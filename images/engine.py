"""The Docker engine that images are made in, and what it answers."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import docker
from docker.errors import DockerException

from testbed.errors import HostError

_TIMEOUT = 900
"""Seconds that the engine may be silent: it copies a gigabyte between two lines."""


def connect() -> docker.DockerClient:
    """The engine that ``DOCKER_HOST`` names, or that of the default socket.

    Raises:
        HostError: none answers.
    """
    try:
        client = docker.from_env(timeout=_TIMEOUT)
        client.ping()
    except DockerException as error:
        raise HostError(
            f"no Docker engine answers ({error}): start one, or name its socket by DOCKER_HOST"
        ) from error
    return client


def answers(lines: Iterable[str | bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects that an engine answers a long request with."""
    for line in lines:
        if line.strip():
            yield json.loads(line)


def check_answer(lines: Iterable[str | bytes], failure: str) -> None:
    """Read an answer to its end.

    Raises:
        HostError: it says that something went wrong; ``failure`` and what the engine said.
    """
    for answer in answers(lines):
        if "error" in answer:
            raise HostError(f"{failure}: {' '.join(str(answer['error']).split())}")

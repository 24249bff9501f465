"""Connect to the Docker engine that builds images, and read its answers."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import docker

from testbed.containers import engine
from testbed.errors import HostError

_TIMEOUT = 900
"""Seconds that the engine may be silent: it may copy a gigabyte between two lines."""


def connect() -> docker.DockerClient:
    """Connect to this host's engine, with a timeout that is long enough for a build.

    Raises:
        HostError: there is no engine that can be used.
    """
    client = engine.connect()
    client.api.timeout = _TIMEOUT
    return client


def answers(lines: Iterable[str | bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects with which the engine answers a long request."""
    for line in lines:
        if line.strip():
            yield json.loads(line)


def check_answer(lines: Iterable[str | bytes], failure: str) -> None:
    """Read an answer to its end.

    Raises:
        HostError: it reports an error; the message is ``failure`` and what the engine said.
    """
    for answer in answers(lines):
        if "error" in answer:
            raise HostError(f"{failure}: {' '.join(str(answer['error']).split())}")

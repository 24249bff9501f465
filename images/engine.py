"""The Docker engine that images are made in, and what it answers."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import docker

from testbed.containers import engine
from testbed.errors import HostError

_TIMEOUT = 900
"""Seconds that the engine may be silent: it copies a gigabyte between two lines."""


def connect() -> docker.DockerClient:
    """This host's engine, with the patience that a build needs.

    Raises:
        HostError: there is none that could be used.
    """
    client = engine.connect()
    client.api.timeout = _TIMEOUT
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

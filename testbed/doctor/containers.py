"""Examine this host's Docker engine for ``testbed doctor``; clean up after runs."""

import contextlib
from collections.abc import Callable, Iterator
from http import HTTPStatus

from docker.errors import APIError
from docker.models.containers import Container

from testbed.containers import engine, image, leftovers
from testbed.doctor.findings import Finding, Leftover, removed_folders
from testbed.errors import HostError

_NOT_NEEDED = "only devices.runtime=docker needs it"


def findings() -> list[Finding]:
    """Return findings about the engine, and about the image that belongs to this code."""
    try:
        client = engine.connect()
    except HostError as error:
        return [Finding("Docker engine", "limited", str(error), _NOT_NEEDED)]
    with contextlib.closing(client):

        def engine_found() -> str:
            engine.check(client, 0)
            return f"{client.version()['Version']} answers at {engine.address()}"

        def image_found() -> str:
            name = image.default_image()
            return f"{name} ({image.find_image(client, name).short_id}) has this code"

        return [_found("Docker engine", engine_found), _found("Docker image", image_found)]


def _found(what: str, examine: Callable[[], str]) -> Finding:
    try:
        with engine.answering():
            return Finding(what, "ok", examine())
    except HostError as error:
        return Finding(what, "limited", str(error), _NOT_NEEDED)


def clean() -> Iterator[Leftover]:
    """Remove containers and folders of runs that are over; yield each of them.

    A folder says that there may be containers, so it stays as long as no engine answers.
    """
    try:
        client = engine.connect()
    except HostError as error:
        yield from (Leftover(str(path), str(error)) for path in leftovers.folders())
        return
    try:
        with contextlib.closing(client), engine.answering():
            for container in leftovers.containers(client):
                yield from _removed(container)
    except HostError as error:
        yield Leftover("containers", str(error))
    else:
        yield from removed_folders(leftovers.folders())


def _removed(container: Container) -> Iterator[Leftover]:
    name = f"container {container.name}"
    try:
        container.remove(force=True)
    except APIError as error:
        # It is gone meanwhile, or the engine is removing it.
        if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            yield Leftover(name, engine.explain(error))
    else:
        yield Leftover(name)

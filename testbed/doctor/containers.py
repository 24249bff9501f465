"""Examine this host's Docker engine for ``testbed doctor``; clean up after runs."""

import contextlib
from collections.abc import Callable

from testbed.containers import engine, image, leftovers
from testbed.doctor.findings import Finding
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
        return Finding(what, "ok", examine())
    except HostError as error:
        return Finding(what, "limited", str(error), _NOT_NEEDED)


def clean() -> list[str]:
    """Remove containers and folders of runs that are over; return what was removed.

    Raises:
        HostError: there is such a folder, so there may be containers, and no engine answers.
    """
    try:
        with contextlib.closing(engine.connect()) as client:
            removed = [f"container {name}" for name in leftovers.remove_containers(client)]
    except HostError:
        if leftovers.folders():
            raise
        return []
    return removed + leftovers.remove_folders()

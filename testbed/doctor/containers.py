"""Check this host's Docker engine before a run and for ``testbed doctor``; clean up after runs."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from docker.errors import DockerException

from testbed.containers import engine, image, left_over
from testbed.doctor.findings import Finding
from testbed.errors import HostError
from testbed.experiment.sections.devices import DevicesSpec
from testbed.planning.node_plan import image_name
from testbed.planning.plan import Plan

_NOT_NEEDED = "only devices.runtime=docker needs it"


def check(plans: Sequence[Plan]) -> None:
    """Check that a Docker engine has the image and can make the runs' containers.

    Raises:
        HostError: it has not, or cannot, or there is no engine.
    """
    section = plans[0].spec.devices
    with contextlib.closing(engine.connect()) as client:
        engine.check(client, max(len(plan.network.devices) for plan in plans))
        # A forked role runs this host's code in any image; a user's own image only has to exist.
        of_this_code = section.image is None or section.launched == "image"
        try:
            image.find_image(client, image_name(plans[0]), of_this_code=of_this_code)
        except DockerException as error:
            raise HostError(engine.explain(error)) from error
        _check_limits(section, client.info())


def _check_limits(section: DevicesSpec, host: dict[str, Any]) -> None:
    """Check limits of processors and memory against the engine's report on its host."""
    parts = (section, *section.classes)
    cpus, memory = (max(getattr(part, key) or 0 for part in parts) for key in ("cpus", "memory"))
    if cpus and not host.get("CpuCfsQuota"):
        raise HostError(
            "devices.cpus: this kernel cannot limit processors (it was built without "
            "CONFIG_CFS_BANDWIDTH): remove the key"
        )
    if cpus > host["NCPU"]:
        raise HostError(
            f"devices.cpus: {cpus:g} is more than the {host['NCPU']} processors of this host: use "
            "fewer, or remove the key to allow all of them"
        )
    if memory > host["MemTotal"]:
        raise HostError(
            f"devices.memory: {memory / 2**30:.1f} GiB is more than the "
            f"{host['MemTotal'] / 2**30:.1f} GiB of this host: use less, or remove the key"
        )


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
            removed = [f"container {name}" for name in left_over.remove_containers(client)]
    except HostError:
        if left_over.folders():
            raise
        return []
    return removed + left_over.remove_folders()
